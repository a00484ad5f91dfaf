"""The README's five-minute tour, as a newcomer takes it: JupyterLab stopped in the middle, real training."""

from __future__ import annotations

import contextlib
import importlib.util
import urllib.error
from pathlib import Path

import pytest

from tests.tour.hub import HubDemo, Person
from tests.tour.lab import Demo, Kernel
from tests.tour.readme import matches, steps

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def ready(require) -> None:
    for package in ("jupyterlab", "jupyterhub", "sklearn"):
        if importlib.util.find_spec(package) is None:
            require(f"{package} is not installed (the extras 'tour' and 'hub')")


@pytest.mark.requires_server("node")
def test_the_tour_prints_what_the_readme_says(ready: None, tmp_path: Path) -> None:
    tour = steps()
    leave = next(number for number, step in enumerate(tour) if "wait" in step.code)
    assert 3 <= leave < len(tour)
    demo = HubDemo(tmp_path / "demo")
    try:
        demo.wait_for("Ctrl-C here ends the demo")
        ada = Person(demo, "ada")
        ada.log_in()
        assert "1/8 of a GPU" in ada.take("1/8")
        kernel = Kernel(ada)
        for step in tour[:leave]:
            check(step.expected, kernel.run(step.code), step.code)

        ada.stop_my_server()
        ada.log_out()
        ada.log_in()
        ada.take("1/8")
        kernel = Kernel(ada)
        for step in tour[leave:]:
            check(step.expected, kernel.run(step.code, timeout=240), step.code)

        karl = Person(demo, "karl")
        karl.log_in()
        karl.take("0")
        assert "speech" in Kernel(karl).run("%gpupool quota")
    finally:
        assert demo.interrupt() == 0
    assert demo.processes() == {}


def test_jobs_go_on_while_the_lab_of_one_person_is_stopped(ready: None, tmp_path: Path) -> None:
    demo = Demo(tmp_path / "demo")
    try:
        demo.wait_for("Ctrl-C here ends the demo")
        Kernel(demo).run("%gpupool submit --time 5m -- sleep 20")
        seen = len(demo.printed)
        with contextlib.suppress(urllib.error.URLError, ConnectionError):  # it may close before it answers
            demo.request("POST", "/api/shutdown")
        assert demo.wait_for(r"The pool goes on without it: (\d+) running", after=seen).group(1) == "1"
        demo.press_enter()
        demo.wait_for("Ctrl-C here ends the demo", after=seen)
        assert "sleep" in Kernel(demo).run("%gpupool jobs")
    finally:
        assert demo.interrupt() == 0
    assert demo.processes() == {}


def check(expected: str, printed: str, code: str) -> None:
    assert matches(expected, printed), f"{code}\n--- the README says\n{expected}\n--- it printed\n{printed}"


def test_the_readme_matcher_can_fail() -> None:
    assert matches("a … c\n…\nend", "a b c\nx\ny\nend")
    assert matches("one\n…\ntwo", "one\ntwo")
    assert not matches("a … c", "a b d")
    assert not matches("one", "one\ntwo")
    assert any("digits" in step.code for step in steps())
