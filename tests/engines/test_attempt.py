"""What is due for an attempt, and when: worked by hand, in monotonic seconds."""

from __future__ import annotations

import signal

import pytest

from jupyter_gpupool.engines.base import WorkSpec
from jupyter_gpupool.engines.local.attempt import Attempt, Clearing
from jupyter_gpupool.engines.local.records import ExitRecord, RunnerRecord, StopRecord


def _attempt(limit_s: int, grace_s: int, **fields: object) -> Attempt:
    spec = WorkSpec(
        key="1/1", job=1, attempt=1, kind="command", argv=("true",), environment={}, workdir="/",
        snapshot=None, snapshot_sha256=None, folder="/jobs/1", limit_s=limit_s, grace_s=grace_s,
        cpus_milli=0, memory_mib=0, owner="ada",
    )  # fmt: skip
    runner = RunnerRecord(pid=5, starttime=1, boot_id="b", clock=1000.0, started=5e9, leaf=None)
    return Attempt(spec, **{"runner": runner, "pidfd": 3, **fields})  # type: ignore[arg-type]


def test_it_is_asked_a_grace_before_its_limit():
    assert _attempt(600, 120).next_step() == (1480.0, "ask")
    assert _attempt(600, 120).asked_by_limit() == StopRecord("limit", 1600.0)


def test_a_grace_of_more_than_half_the_limit_is_cut_to_half():
    assert _attempt(60, 120).next_step() == (1030.0, "ask")


def test_after_it_was_asked_comes_the_kill():
    assert _attempt(600, 120, stop=StopRecord("stop", 1200.0)).next_step() == (1200.0, "kill")


def test_a_kill_is_repeated_later():
    attempt = _attempt(600, 120, stop=StopRecord("stop", 1200.0), kill_again=1200.2)
    assert attempt.next_step() == (1200.2, "kill")


def test_a_runner_that_does_not_end_with_its_job_is_woken_and_in_the_end_killed():
    attempt = _attempt(600, 120, stop=StopRecord("stop", 1200.0))
    assert attempt.nudge(1209.0) == signal.SIGCONT
    assert attempt.nudge(1211.0) == signal.SIGKILL


def test_no_grace_reaches_past_the_limit():
    assert _attempt(600, 120).asked(StopRecord("cancel", 9999.0)) == StopRecord("cancel", 1600.0)


def test_the_newer_cause_and_the_earlier_end_hold():
    attempt = _attempt(600, 120, stop=StopRecord("stop", 1100.0))
    assert attempt.asked(StopRecord("cancel", 1300.0)) == StopRecord("cancel", 1100.0)


@pytest.mark.parametrize("earlier", ["cancel", "limit"])
def test_a_stop_for_others_changes_nothing_for_work_that_is_not_to_run_again(earlier):
    attempt = _attempt(600, 120, stop=StopRecord(earlier, 1300.0))
    assert attempt.asked(StopRecord("stop", 1100.0)) == StopRecord(earlier, 1100.0)


def test_nothing_is_due_once_the_runner_is_gone():
    attempt = _attempt(600, 120, pidfd=-1)
    assert attempt.next_step() is None
    assert not attempt.alive


def test_what_may_be_left_is_looked_for_ever_more_rarely():
    attempt = _attempt(600, 120, pidfd=-1)
    clearing = attempt.clearing = Clearing(attempt.lost(7.0), since=50.0, again=50.0)
    waits = []
    now = 50.0
    for _ in range(12):
        clearing.put_off(now)
        waits.append(clearing.again - now)
        now = clearing.again
    assert attempt.alive
    assert attempt.next_step() == (now, "clear")
    assert waits[:3] == pytest.approx([0.005, 0.01, 0.02])
    assert waits[-1] == 1.0


@pytest.mark.parametrize(
    ("stop", "exit_code", "cause", "message"),
    [
        (None, 0, "exit", ""),
        (None, 1, "exit", ""),
        ("cancel", 1, "cancel", ""),
        ("limit", 1, "limit", "The time limit of 600 s was reached."),
        ("limit", 0, "limit", ""),
    ],
)
def test_how_a_reported_end_reads(stop, exit_code, cause, message):
    attempt = _attempt(600, 120, stop=StopRecord(stop, 1.0) if stop else None)
    record = ExitRecord(exit_code, None, "exit", "", 40, 9.0, True)
    end = attempt.ended_as(record, tree_gone=True, peak_mib=50, oom=False)
    assert (end.exit_code, end.cause, end.message, end.peak_mib, end.ended) == (
        exit_code,
        cause,
        message,
        50,
        9.0,
    )
    assert attempt.ended_as(record, tree_gone=True, peak_mib=None, oom=False).peak_mib == 40


def test_a_job_that_never_began_says_so_whatever_was_asked():
    attempt = _attempt(600, 120, stop=StopRecord("cancel", 1.0))
    record = ExitRecord(None, None, "start", "The folder is gone.", None, 9.0, True)
    end = attempt.ended_as(record, tree_gone=True, peak_mib=None, oom=False)
    assert (end.cause, end.message) == ("start", "The folder is gone.")
