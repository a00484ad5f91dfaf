"""The single-user server's program: what it puts off is there when it is asked for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from jupyter_gpupool.server.singleuser import PARSERS

POSTPONED = """
import sys
from jupyter_gpupool.server.singleuser import PARSERS, Postponed, postpone
postpone()
import jsonschema, jupyter_events
assert isinstance(sys.modules[PARSERS], Postponed)
"""
CHECKED = """
checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
assert checker.conforms("http://example.org/ö", "iri")
assert not checker.conforms("no iri", "iri")
assert checker.conforms("../ö", "iri-reference")
import rfc3987_syntax
assert not isinstance(rfc3987_syntax, Postponed)
"""
ASKED_OTHERWISE = """
import inspect, rfc3987_syntax
inspect.getmodule(inspect)
assert isinstance(sys.modules[PARSERS], Postponed)
assert rfc3987_syntax.parse("iri", "http://example.org/")
assert not isinstance(sys.modules[PARSERS], Postponed)
"""
ABSENT = """
import sys
sys.modules["rfc3987_syntax"] = None
from jupyter_gpupool.server.singleuser import postpone
postpone()
import jsonschema
assert sys.modules["rfc3987_syntax"] is None
assert "iri" not in jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers
"""


@pytest.mark.skipif(importlib.util.find_spec(PARSERS) is None, reason=f"{PARSERS} is not installed here")
@pytest.mark.parametrize("program", [POSTPONED + CHECKED, POSTPONED + ASKED_OTHERWISE, ABSENT])
def test_formats_are_checked_as_ever(program: str) -> None:
    subprocess.run([sys.executable, "-P", "-c", program], check=True, timeout=60)
