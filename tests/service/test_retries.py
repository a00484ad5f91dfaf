"""A program that fails is tried again as often as its owner says; nothing else counts as its failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpupool.engines.base import Ended
from jupyter_gpupool.ledger.records import Job, JobState
from jupyter_gpupool.scheduler.model import Request
from jupyter_gpupool.service.outcomes import Outcome, outcome_of
from jupyter_gpupool.service.retries import retry

ENDED = Ended("1/1", 3, None, "exit", "", None, False, 0.0, True)
JOB = Job(
    id=1,
    owner="ada",
    group="team",
    name="j",
    kind="command",
    state=JobState.RUNNING,
    priority="normal",
    submitted=0,
    limit_s=60,
    grace_s=1,
    request=Request(),
    entry={},
    workdir="/",
    workdir_mode="here",
    resumable=False,
    window=None,
    snapshot=None,
    environment={},
    interpreter={},
    provenance={},
    notify=(),
    key=None,
    retries=3,
)


def judged(job: Job = JOB, **changes: Any) -> Any:
    ended = replace(ENDED, **changes)
    return retry(job, ended, outcome_of(ended, "1m"))


@pytest.mark.parametrize(("failures", "rest"), [(0, 10), (1, 20), (2, 40)])
def test_it_rests_longer_each_time(failures: int, rest: int) -> None:
    found = judged(replace(JOB, failures=failures))
    assert found.rest_s == rest
    assert found.reason == f"Finished with exit code 3. It is tried again: retry {failures + 1} of 3."


def test_it_never_rests_longer_than_half_an_hour() -> None:
    assert judged(replace(JOB, retries=100, failures=99)).rest_s == 1800


def test_its_last_failure_is_its_end() -> None:
    assert judged(replace(JOB, failures=3)) is None
    assert judged(replace(JOB, retries=0)) is None


@pytest.mark.parametrize(
    "ends",
    [
        {"exit_code": 0},
        {"cause": "cancel", "exit_code": 1},
        {"cause": "limit", "exit_code": None, "signal": 15},
        {"cause": "stop", "exit_code": 1},
        {"cause": "lost", "exit_code": None},
        {"cause": "start", "exit_code": None},
    ],
)
def test_what_is_not_the_failure_of_the_program(ends: dict[str, Any]) -> None:
    assert judged(**ends) is None


def test_a_signal_is() -> None:
    assert judged(exit_code=None, signal=11) is not None


def test_only_what_failed() -> None:
    assert retry(JOB, ENDED, Outcome(None, "")) is None


def test_a_service_queues_it_again(start: Any) -> None:
    call = start("1x1x8GiB")
    job = call.submit("exit 3", retries=1)
    while (waits := call.job(job["id"]))["failures"] == 0:
        assert waits["state"] not in ("failed", "completed")
    assert (waits["state"], waits["failures"], waits["attempt"]) == ("queued", 1, 1)
    assert waits["reason"] == "Finished with exit code 3. It is tried again: retry 1 of 1."
    while waits["waiting"]["reason"] == "Priority":
        waits = call.job(job["id"])
    assert waits["waiting"]["reason"] == "BackOff"
