"""What a job says of itself with its own token, and how little else that token does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.engines.local.files import DirectFiles
from jupyter_gpupool.ledger.records import JobState
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.progress import Progress
from jupyter_gpupool.service.routes import ROUTES
from jupyter_gpupool.service.tokens import JobTokens, secret_in


class Reporter:
    """A job that runs, and its token."""

    def __init__(self, call: Any):
        self.call = call
        self.id = call.submit("sleep 100")["id"]
        call.wait(self.id, "running")
        secret = secret_in(ServiceConfig(call.home).token_secret)
        self.token = JobTokens(secret, {}).mint(self.id, 1)

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        return self.call(method, path, body, Authorization=f"Bearer {self.token}")

    def report(self, **body: Any) -> Any:
        return self("POST", f"jobs/{self.id}/progress", body)


@pytest.fixture(scope="module")
def reporter(start_once: Any) -> Reporter:
    return Reporter(start_once())


def test_it_reports_and_its_owner_sees_it(reporter: Reporter) -> None:
    assert reporter.report(fraction=0.25, values={"loss": 0.5, "step": 3, "best": None}).status == 200
    shown = reporter.call.job(reporter.id)["progress"]
    assert (shown["fraction"], shown["values"]) == (0.25, {"loss": 0.5, "step": 3, "best": None})
    assert shown["at"]
    assert reporter.report(fraction=0.5).status == 200
    assert reporter("GET", f"jobs/{reporter.id}").body["progress"]["fraction"] == 0.5


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"fraction": 1.5}, "fraction"),
        ({"fraction": "half"}, "fraction"),
        ({"values": {"loss": [1]}}, "loss can be a number or a text"),
        ({"values": {"text": "x" * 5000}}, "at most 4096"),
        ({"values": 3}, "values"),
        ({"fractoin": 1}, "Did you mean fraction?"),
    ],
)
def test_what_is_no_report_is_refused_in_a_sentence(reporter: Reporter, body: Any, part: str) -> None:
    answer = reporter.report(**body)
    assert answer.status == 422
    assert part in answer.error["message"] + (answer.error["hint"] or "")


def test_with_the_token_it_can_do_nothing_else(reporter: Reporter) -> None:
    assert reporter("GET", "whoami").status == 200
    other = reporter.call.submit("true")["id"]
    for path in (f"jobs/{other}", f"jobs/{other}/progress"):
        method = "POST" if path.endswith("progress") else "GET"
        assert reporter(method, path, {} if method == "POST" else None).status == 403
    for route in ROUTES:
        if not (route.by_job or route.by_anybody):
            path = route.path.format(id=reporter.id, name="x", sha256="0" * 64)
            answer = reporter(route.method, path, b"{}" if route.body else None)
            assert answer.status == 403, route.name
    reporter.call.wait(other)


def test_without_the_token_nobody_reports_for_a_job(reporter: Reporter) -> None:
    answer = reporter.call("POST", f"jobs/{reporter.id}/progress", {"fraction": 1})
    assert answer.status == 403
    forged = reporter.token[:-4] + "0000"
    answer = reporter.call("GET", "whoami", Authorization=f"token {forged}")
    assert answer.status == 401


def test_the_token_works_after_a_restart_and_is_void_after_the_end(spawn: Any) -> None:
    first = spawn()
    reporter = Reporter(first.call)
    assert reporter.report(fraction=0.5).status == 200
    first.kill()
    again = spawn()
    assert again.call.job(reporter.id)["progress"]["fraction"] == 0.5
    assert reporter.report(fraction=0.75).status == 200
    again.call("POST", f"jobs/{reporter.id}/cancel")
    ended = again.call.wait(reporter.id)
    assert ended["progress"]["fraction"] == 0.75
    for method, path in (("GET", "whoami"), ("POST", f"jobs/{reporter.id}/progress")):
        answer = reporter(method, path, {} if method == "POST" else None)
        assert (answer.status, answer.error["code"]) == (401, "void_token")


def job(attempt: int, state: JobState = JobState.RUNNING) -> Any:
    return SimpleNamespace(id=7, attempt=attempt, state=state)


class Files(DirectFiles):
    """Counts what it is asked, and is away at times."""

    asked, away = 0, False

    def open(self, job: int, *parts: str) -> int:
        if self.away:
            raise EngineError("The launcher is away.")
        self.asked += 1
        return super().open(job, *parts)


def test_what_is_over_is_asked_for_once_and_an_engine_that_is_away_hides_nothing(tmp_path: Path) -> None:
    files = Files(tmp_path / "jobs")
    progress = Progress(tmp_path / "sent", files)
    for folder in ("out", "1"):
        (tmp_path / "jobs" / "7" / folder).mkdir(parents=True)
    (tmp_path / "jobs" / "7" / "1" / "progress.jsonl").write_text('{"t": 9, "fraction": 0.9}\n')
    files.away = True
    assert progress.of(job(1, JobState.COMPLETED)) is None
    files.away = False
    for _ in range(3):
        assert progress.of(job(1, JobState.COMPLETED))["fraction"] == 0.9
    assert files.asked == 1
    assert progress.of(job(2)) is None


def test_the_later_of_what_was_sent_and_written_counts(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "sent", DirectFiles(tmp_path / "jobs"))
    folder = tmp_path / "jobs" / "7" / "1"
    folder.mkdir(parents=True)
    (tmp_path / "jobs" / "7" / "out").mkdir()
    assert progress.of(job(0)) is progress.of(job(1)) is None
    progress.send(job(1), 0.1, {}, 100)
    (folder / "progress.jsonl").write_text('{"t": 200, "fraction": 0.2, "values": {}}\n')
    assert progress.of(job(1))["fraction"] == 0.2
    progress.send(job(1), 0.3, {}, 300)
    assert progress.of(job(1))["fraction"] == 0.3
    assert progress.of(job(2)) is None, "another run of it has said nothing"
    progress.forget(7)
    progress.forget(7)
    assert progress.of(job(1))["fraction"] == 0.2


@pytest.mark.parametrize(
    ("line", "ppm"),
    [
        (f'{{"t": 9, "fraction": 1{"0" * 400}}}', 1_000_000),
        (f'{{"t": 1{"0" * 400}, "fraction": -1{"0" * 400}}}', 0),
        ('{"t": 9, "fraction": 1e999}', 0),
        ("[" * 8000, 0),
    ],
)
def test_nonsense_in_a_jobs_own_file_keeps_nobody_from_seeing_it_end(
    tmp_path: Path, line: str, ppm: int
) -> None:
    folder = tmp_path / "jobs" / "7" / "1"
    folder.mkdir(parents=True)
    for inner in ("out", "checkpoint"):
        (tmp_path / "jobs" / "7" / inner).mkdir()
    (folder / "progress.jsonl").write_text(f"{line}\n")
    mark = Progress(tmp_path / "sent", DirectFiles(tmp_path / "jobs")).mark(job(1))
    assert mark is not None
    assert mark.progress_ppm == ppm
