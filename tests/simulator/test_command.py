"""``jupyter gpupool simulate``: files in, figures, events and a report out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jupyter_gpupool.app import main
from jupyter_gpupool.commands import simulate as command

WORK = """\
submit,duration,limit,gpus,group,user,kind
0,1h,1h,2,vision,ada,job
60,30m,1h,2,speech,bob,job
90,10m,10m,1,speech,cy,job
0,2h,2h,1,vision,eve,session
"""
POLICY = """\
partitions: {all: {gpus: ["*:*"], for: [session, job]}}
groups: {vision: {quota: {gpus: 3}}, speech: {quota: {gpus: &most %d}, limit: {gpus: *most}}}
"""


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def simulate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    monkeypatch.setenv("GPUPOOL_SIMULATE", "")
    monkeypatch.chdir(tmp_path)
    Path("work.csv").write_text(WORK)
    Path("one.yaml").write_text(POLICY % 2)
    Path("other.yaml").write_text(POLICY % 3)

    def run(*words: str) -> Said:
        return Said(main(("simulate", *words)), *capsys.readouterr())

    return run


def test_one_object_has_every_figure(simulate: Callable[..., Said]) -> None:
    found = simulate("work.csv", "--policy", "one.yaml", "--simulate", "1x5x8GiB", "--json").json
    wanted = {
        "jobs_per_week",
        "held_hours_per_card_day",
        "touched_hours_per_card_day",
        "session_wait_p95_s",
        "job_wait_mean_s",
        "job_wait_p95_s",
        "bounded_slowdown_mean",
        "eta_error_median",
        "preemptions",
    }
    assert wanted <= found.keys()
    assert found["job_wait_mean_s"] == (0 + 0 + 1770) / 3, "speech has two cards: the third job waits for one"


def test_policies_and_peers_stand_side_by_side(simulate: Callable[..., Said]) -> None:
    words = (
        "work.csv",
        "--policy",
        "one.yaml",
        "--compare",
        "other.yaml",
        "--peers",
        "--simulate",
        "1x6x8GiB",
    )
    found = simulate(*words, "--json").json
    assert [other["policy"] for other in found["compare"]] == ["other.yaml", "FIFO", "EASY backfill"]
    assert [other["job_wait_mean_s"] for other in found["compare"]] == [0, 0, 0]
    said = simulate(*words)
    assert said.code == 0
    assert "ONE.YAML" in said.out
    assert "EASY BACKFILL" in said.out
    assert "wait of jobs, mean" in said.out


def test_without_a_policy_quotas_follow_the_work(simulate: Callable[..., Said]) -> None:
    found = simulate("work.csv", "--simulate", "2x4x8GiB", "--json").json
    assert (found["policy"], found["refused"], found["job_wait_mean_s"]) == ("quota by work", 0, 0)


def test_events_and_report_are_written(simulate: Callable[..., Said]) -> None:
    simulate("work.csv", "--simulate", "2x4x8GiB", "--events", "e.jsonl", "--report", "r.html", "--peers")
    first, *events = [json.loads(line) for line in Path("e.jsonl").read_text().splitlines()]
    assert first["event"] == "pool"
    assert len(first["gpus"]) == 8
    assert {event["event"] for event in events} == {"submit", "start", "end"}
    page = Path("r.html").read_text()
    seen = _Page()
    seen.feed(page)
    assert seen.open == []
    assert not seen.addresses, "the page needs nothing but itself"
    assert page.count("<svg") >= 6
    assert "prefers-color-scheme: dark" in page
    assert "FIFO" in page
    assert "speech" in page


def test_another_policy_on_the_way_is_told_with_its_windows(simulate: Callable[..., Said]) -> None:
    calendar = 'calendars: {night: {weekly: ["Mon-Sun 20:00-08:00"]}}\n'
    Path("later.yaml").write_text(calendar + (POLICY % 3).replace("all:", "every:"))
    words = ("work.csv", "--policy", "one.yaml", "--then", "100s=later.yaml", "--drain", "node2@10m")
    simulate(*words, "--events", "e.jsonl")
    first, *events = [json.loads(line) for line in Path("e.jsonl").read_text().splitlines()]
    assert {gpu["partition"] for gpu in first["gpus"]} == {"all"}, "as it is at the start"
    then = next(event for event in events if event["event"] == "policy")
    assert (then["t"], [11 * 3600, 23 * 3600] in then["windows"]["night"]) == (100, True)
    assert {"t": 600, "event": "node", "node": "node2", "available": False, "because": "drained"} in events


def test_names_in_a_report_are_text(simulate: Callable[..., Said]) -> None:
    Path("bad.csv").write_text("submit,duration,user\n0,60,<script>alert(1)</script>\n")
    simulate("bad.csv", "--report", "r.html")
    assert "<script" not in Path("r.html").read_text()


def test_several_seeds_show_their_spread(simulate: Callable[..., Said]) -> None:
    words = ("work.csv", "--simulate", "1x8x8GiB", "--policy", "one.yaml", "--limits", "5")
    found = simulate(*words, "--seeds", "3", "--poisson", "work.csv", "--horizon", "1d", "--json").json
    least, greatest = found["spread"]["jobs_submitted"]
    assert least <= found["jobs_submitted"] <= greatest
    assert simulate(*words, "--json").json == simulate(*words, "--json").json


def test_a_trace_is_cut_by_days(simulate: Callable[..., Said]) -> None:
    rows = "".join(f"2017-09-{day} 10:00:00,60.0,1,60.0,vc\n" for day in range(10, 20))
    Path("trace.csv").write_text(f"timestamp,duration,num_gpus,gpu_time,cluster\n{rows}")
    found = simulate("trace.csv", "--from", "2017-09-12", "--until", "2017-09-15", "--json").json
    assert found["jobs_completed"] == 3


def test_rows_that_could_never_run_are_told(simulate: Callable[..., Said]) -> None:
    Path("one.yaml").write_text(POLICY % 1)
    said = simulate("work.csv", "--policy", "one.yaml", "--json")
    assert (said.json["refused"], said.json["jobs_completed"]) == (1, 2)
    assert "one.yaml: 1 row left out that could never run. " in said.err


def test_it_begins_when_one_says(simulate: Callable[..., Said]) -> None:
    simulate("work.csv", "--policy", "one.yaml", "--start", "2026-06-01 08:00", "--events", "e.jsonl")
    assert '"start":"2026-06-01T08:00:00+00:00"' in Path("e.jsonl").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nothing",), "no file and no scenario 'nothing'.*site-before"),
        (("nothing.csv",), r"^nothing.csv cannot be read: No such file or directory\.$"),
        (("work.csv", "--from", "2017-09-18"), "has no dates"),
        (("work.csv", "--start", "soon"), '"soon" is not a time'),
        (("one.yaml",), "one.yaml has no column submit and duration"),
        (("work.csv", "--seeds", "0"), "--seeds 0 plays nothing"),
        (("work.csv", "--drain", "node9@1h-2h"), "unknown node 'node9'.*node4"),
        (("work.csv", "--drain", "node1"), "names no node"),
        (("work.csv", "--drain", "node1@2h-1h"), "ends before it begins"),
        (("work.csv", "--policy", "work.csv"), "work.csv"),
        (("work.csv", "--policy", "no.yaml"), "no.yaml"),
        (("work.csv", "--simulate", "many"), "does not describe a simulated pool"),
        (("work.csv", "--horizon", "soon"), "--horizon"),
        (("work.csv", "--limits", "0.5"), "--limits 0.5"),
        (("work.csv", "--last", "6h"), "--last 6h says how far back installed goes, not work.csv"),
        (("site-split", "--until", "2017-09-18"), "do not cut site-split.*--horizon"),
        (("work.csv", "--simulate", "1x2x8GiB"), "and the pool has 2"),
    ],
)
def test_a_mistake_is_one_sentence(simulate: Callable[..., Said], words: tuple[str, ...], says: str) -> None:
    said = simulate(*words)
    assert said.code in (1, 2)
    assert said.out == ""
    assert "Traceback" not in said.err
    assert re.search(says, said.err), said.err


@pytest.mark.parametrize("option", ["--events", "--report", "--export"])
def test_a_file_that_cannot_be_written_is_named_before_anything_is_played(
    simulate: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(command, "play_all", None)
    for file, why in (("no/such/folder", "No such file or directory"), (".", "Is a directory")):
        said = simulate("work.csv", option, file)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"{file} cannot be written: {why}."), said.err
    Path("there").write_text("kept")
    with pytest.raises(TypeError):
        simulate("work.csv", option, "there")
    with pytest.raises(TypeError):
        simulate("work.csv", option, "new")
    assert (Path("there").read_text(), Path("new").exists()) == ("kept", False)


class _Page(HTMLParser):
    """Which elements are left open, and what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
