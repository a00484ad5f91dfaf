"""The Lab extension's own tests: its components, its model and its client, by jest."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "labextension"
JEST = FOLDER / "node_modules" / ".bin" / "jest"


@pytest.mark.requires_server("node")
@pytest.mark.timeout(300)
def test_components_model_and_client(require: Callable[[str], None]) -> None:
    if not JEST.exists():
        require("the Lab extension's packages are not installed (make test installs them)")
    done = subprocess.run([JEST, "--ci"], cwd=FOLDER, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
