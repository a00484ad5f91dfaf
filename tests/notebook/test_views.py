"""HTML of the service's answers: escaped, themed by variables, readable without seeing colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

from jupyter_gpupool.notebook import html, views
from tests.faces import samples

EVIL = "<script>alert('x')</script>&\""
ENDED_BADLY = samples.ended(
    "failed",
    diagnosis={"kind": "exception", "summary": "ValueError: no", "hint": None, "lines": ["Traceback", EVIL]},
)
PAGES = {
    "jobs": views.jobs({"jobs": [samples.job(name=EVIL), samples.running()]}),
    "no jobs": views.jobs({"jobs": []}),
    "queue": views.queue({"waiting": [samples.job(name=EVIL)], "running": [samples.running(user=EVIL)]}),
    "quota": views.quota(samples.QUOTA),
    "gpus": views.gpus(samples.POOL),
    "job": views.job(samples.running(workdir=EVIL, warnings=[EVIL])),
    "why": views.why(ENDED_BADLY),
    "waiting": views.why(samples.job()),
    "overview": views.overview(samples.WHOAMI, samples.QUOTA, {"waiting": [samples.job()], "running": []}),
    "acted": views.acted({"jobs": [samples.job()]}),
    "dry run": views.dry_run(samples.DRY_RUN),
    "report": views.report(samples.REPORT),
    "history": views.history(samples.HISTORY),
}


class Page(HTMLParser):
    """Collects the elements of a page, and checks that they are closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, name: str) -> Iterator[dict[str, Any]]:
        return (attributes for tag, attributes in self.elements if tag == name)


@pytest.fixture(params=PAGES)
def text(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]


def test_nothing_of_the_users_becomes_an_element(text: str) -> None:
    assert not any(Page(text).all("script"))
    assert "alert('x')" not in text


def test_every_column_and_row_of_a_table_has_a_heading(text: str) -> None:
    page = Page(text)
    scopes = [heading.get("scope") for heading in page.all("th")]
    assert set(scopes) <= {"col", "row"}
    assert len(list(page.all("table"))) == len(list(page.all("caption")))


def test_every_bar_says_what_it_measures(text: str) -> None:
    page = Page(text)
    for name in ("progress", "meter"):
        assert all(bar["aria-label"] for bar in page.all(name))


def test_colours_come_from_the_theme(text: str) -> None:
    colours = re.findall(r"(?:color|border-left):([^;\"]+)", text)
    assert all("var(--jp-" in colour or colour == "inherit" for colour in colours)
    assert "#" not in re.sub(r"&#\w+;", "", text)


def test_a_state_is_a_word_not_only_a_colour() -> None:
    assert ">timed out</span>" in html.state("timed_out")


@pytest.mark.parametrize(("fraction", "value"), [(0.0, "0"), (0.256, "26"), (1.7, "100"), (-1.0, "0")])
def test_a_progress_bar_is_between_0_and_100(fraction: float, value: str) -> None:
    (bar,) = Page(html.progress(fraction, "x")).all("progress")
    assert (bar["value"], bar["max"]) == (value, "100")


def test_no_progress_no_bar() -> None:
    assert html.progress(None, "x") == ""


def test_a_gauge_needs_a_limit() -> None:
    assert html.gauge(3, None, "3 used", "x") == "3 used"
    (bar,) = Page(html.gauge(9, 6, "9 of 6", "x")).all("meter")
    assert (bar["value"], bar["max"]) == ("6", "6")


def test_what_must_be_known_is_on_the_page() -> None:
    assert "1.125 of 6" in PAGES["quota"]
    assert "vision: Over quota since " in PAGES["quota"]
    assert "vision: Lends 2 GPUs to speech, until " in PAGES["quota"]
    assert "ada 8 GiB (job 7)" in PAGES["gpus"]
    assert "pid 99" in PAGES["gpus"]
    assert "not active yet" in PAGES["gpus"]
    assert "higher rank" in PAGES["waiting"]
    assert "ValueError: no" in PAGES["why"]
    assert "12.5" in PAGES["report"]
    assert "Simulated pool" in PAGES["overview"]


def test_a_bundle_has_text_and_html_and_what_is_added() -> None:
    bundle = views.Bundle("text", "<p>html</p>", {"x/y": 1})
    assert repr(bundle) == "text"
    assert bundle._repr_mimebundle_() == {"text/plain": "text", "text/html": "<p>html</p>", "x/y": 1}
