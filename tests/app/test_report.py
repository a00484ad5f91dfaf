"""``jupyter gpupool report`` and ``history``: where the answer goes, and in which form."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jupyter_gpupool.commands.report_page import html
from tests.app.conftest import Said
from tests.faces.fake import FakeService
from tests.faces.samples import HISTORY, REPORT, USED

Shell = Callable[..., Said]


@pytest.fixture(autouse=True)
def _answers(fake: FakeService) -> None:
    fake.answers["GET report"] = (200, REPORT)
    fake.answers["GET history"] = (200, HISTORY)


def test_what_is_asked(shell: Shell, fake: FakeService) -> None:
    shell("report", "--month", "2026-10", "--group", "vision", "--user", "ada")
    assert fake.asked[-1][0] == "GET report?days=7&month=2026-10&group=vision&user=ada"
    shell("report", "--week")
    assert fake.asked[-1][0] == "GET report?days=7&week=this"
    shell("history", "--at", "2026-10-12 03:00", "--gpu", "node3:3")
    assert fake.asked[-1][0] == "GET history?at=2026-10-12+03%3A00&gpu=node3%3A3"


def test_csv_is_by_user_or_as_asked(shell: Shell) -> None:
    rows = list(csv.DictReader(io.StringIO(shell("report", "--csv").out)))
    assert [(row["group"], row["user"]) for row in rows] == [("vision", "ada"), ("vision", "")]
    assert shell("report", "--csv", "--by", "day").out.startswith("date,")
    refused = shell("report", "--csv", "--json")
    assert (refused.code, "CSV or JSON" in refused.out + refused.err) == (2, True)


def test_one_table(shell: Shell) -> None:
    said = shell("report", "--by", "group").out
    assert "BUDGET" in said
    assert "IN USE H/DAY" not in said


def test_a_page_is_written_and_nothing_else_is_printed(shell: Shell, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    said = shell("report", "--html", str(page))
    assert (said.code, said.out) == (0, "")
    assert f"Written to {page}." in said.err
    assert shell("report", "--html", str(page), "--json").json == REPORT
    text = page.read_text()
    assert text.count("<svg") == 4
    assert "25 of 2,000" in text
    refused = shell("report", "--html", str(tmp_path / "none" / "x.html"))
    assert (refused.code, "cannot be written" in refused.err) == (2, True)


class Tags(HTMLParser):
    """Counts what is open, and collects where a page would fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "rect", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line"):
            assert self.open.pop() == tag


def test_a_page_is_whole_needs_nothing_and_takes_names_for_text() -> None:
    bad = "<script>alert(1)</script>"
    days = [{**REPORT["days"][0], "date": f"2026-11-{day:02}"} for day in range(1, 31)]
    text = html({**REPORT, "days": days, "use": [{"group": bad, "user": bad, **USED}]})
    tags = Tags()
    tags.feed(text)
    assert (tags.open, tags.fetched) == ([], [])
    assert "<script" not in text
    assert len(re.findall(r'class="tick"', text)) <= 8


def test_a_pool_without_use_has_a_page_too() -> None:
    nothing = {**REPORT, "days": [], "use": [], "groups": [], "cards": []}
    assert "<svg" not in html(nothing)
