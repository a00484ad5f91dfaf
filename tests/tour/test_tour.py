"""The README's five-minute tour, as a newcomer takes it: JupyterLab stopped in the middle, real training."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tour.lab import Demo, Kernel
from tests.tour.readme import matches, steps

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def demo(tmp_path: Path, require) -> Iterator[Demo]:
    for package in ("jupyterlab", "sklearn"):
        if importlib.util.find_spec(package) is None:
            require(f"{package} is not installed (the extra 'tour')")
    demo = Demo(tmp_path / "demo")
    yield demo
    demo.interrupt()


def test_the_tour_prints_what_the_readme_says(demo: Demo) -> None:
    tour = steps()
    stop = next(number for number, step in enumerate(tour) if "wait" in step.code)
    assert 2 <= stop < len(tour)

    demo.wait_for("Ctrl-C here ends the demo")
    kernel = Kernel(demo)
    for step in tour[:stop]:
        check(step.expected, kernel.run(step.code), step.code)

    seen = len(demo.printed)
    with contextlib.suppress(urllib.error.URLError, ConnectionError):  # it may close before it has answered
        demo.request("POST", "/api/shutdown")
    assert demo.wait_for(r"The pool goes on without it: (\d+) running", after=seen).group(1) == "1"
    demo.press_enter()
    demo.wait_for("Ctrl-C here ends the demo", after=seen)

    kernel = Kernel(demo)
    for step in tour[stop:]:
        check(step.expected, kernel.run(step.code, timeout=240), step.code)

    assert demo.interrupt() == 0
    assert demo.processes() == {}


def check(expected: str, printed: str, code: str) -> None:
    assert matches(expected, printed), f"{code}\n--- the README says\n{expected}\n--- it printed\n{printed}"


def test_the_readme_matcher_can_fail() -> None:
    assert matches("a … c\n…\nend", "a b c\nx\ny\nend")
    assert matches("one\n…\ntwo", "one\ntwo")
    assert not matches("a … c", "a b d")
    assert not matches("one", "one\ntwo")
    assert re.search("digits", steps()[0].code + steps()[1].code)
