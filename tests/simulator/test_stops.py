"""Stopped jobs: the grace, the way back into the queue, and what is lost; all decisions are made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from jupyter_gpupool.scheduler.model import Plan, Seconds, Snapshot, Stop, StopCause
from jupyter_gpupool.scheduler.plan import fill
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.simulator.engine import Discipline
from jupyter_gpupool.simulator.play import Result
from jupyter_gpupool.simulator.room import Room
from jupyter_gpupool.simulator.workload import Task
from tests.simulator.conftest import MONDAY, happened

Run = Callable[..., Result]
GRACE = 120
CAUSE: StopCause = "reclaim"


@pytest.fixture(autouse=True)
def every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make passes that could start nothing, too: here they stop work for no reason."""
    monkeypatch.setattr(Room, "may_change", lambda room: True)


def stopping(moments: Mapping[Seconds, int]) -> Discipline:
    """Do what the policy does, and at some moments after the start ask a job to stop."""

    def decide(snapshot: Snapshot, now: Seconds, standing: Standing) -> Plan:
        found = fill(snapshot, now, standing)
        id = moments.get(now - MONDAY)
        stops = (Stop(id, id, CAUSE, 2),) if id else ()
        return Plan(found.starts, found.promises, found.moves, {}, stops)

    return Discipline("by hand", decide, None)


def job(duration: Seconds, **more: int) -> Task:
    return Task(0, duration, more.get("limit", duration), 4, resumable=True)


def tick(at: Seconds) -> Task:
    """Return a task that makes the scheduler look at a moment."""
    return Task(at, 1, 1, 4, user="tick")


def ends(result: Result, id: int) -> list[tuple[int, str]]:
    return [(e["t"], e["outcome"]) for e in result.events if (e["event"], e["id"]) == ("end", id)]


def test_it_works_to_the_end_of_its_grace_and_waits_a_minute(run: Run) -> None:
    result = run([job(1000), tick(300)], discipline=stopping({300: 1}))
    assert happened(result, "start", "stop_asked", "end", "resume") == [
        (0, "start", 1),
        (300, "stop_asked", 1),
        (300 + GRACE, "end", 1),
        (300 + GRACE, "start", 2),
        (301 + GRACE, "end", 2),
        (360 + GRACE, "start", 1),
        (360 + GRACE, "resume", 1),
        (1060, "end", 1),
    ]
    assert ends(result, 1) == [(420, "preempted"), (1060, "completed")]
    asked, back, resumed = (
        next(event for event in result.events if event["event"] == name)
        for name in ("stop_asked", "end", "resume")
    )
    assert (asked["cause"], asked["taker"]) == (CAUSE, 2)
    assert back["eligible_t"] == 480
    assert resumed["done_s"] == 420
    assert result.figures["preemptions"] == 1
    assert result.figures["job_wait_mean_s"] == (60 + 120) / 2


def test_who_loses_its_work_starts_from_zero(run: Run) -> None:
    result = run([job(1000), tick(300)], discipline=stopping({300: 1}), resume="lose")
    assert ends(result, 1) == [(420, "preempted"), (1480, "completed")]
    assert next(event["done_s"] for event in result.events if event["event"] == "resume") == 0


@pytest.mark.parametrize(
    ("duration", "limit", "last"),
    [
        (420, 420, (420, "completed")),
        (421, 421, (481, "completed")),
        (350, 900, (350, "completed")),
        (900, 350, (350, "timed_out")),
    ],
)
def test_work_that_is_done_within_the_grace_is_completed(
    run: Run, duration: int, limit: int, last: tuple[int, str]
) -> None:
    result = run([job(duration, limit=limit), tick(300)], discipline=stopping({300: 1}))
    assert ends(result, 1)[-1] == last
    assert len(ends(result, 1)) == (2 if duration == 421 else 1)


def test_nobody_is_asked_twice(run: Run) -> None:
    result = run([job(1000), tick(300), tick(350)], discipline=stopping({300: 1, 350: 1}))
    assert happened(result, "stop_asked") == [(300, "stop_asked", 1)]
    assert ends(result, 1)[0] == (420, "preempted")


def test_each_stop_doubles_the_back_off(run: Run) -> None:
    result = run([job(1000), tick(300), tick(600)], discipline=stopping({300: 1, 600: 1}))
    eligible = [e["eligible_t"] - e["t"] for e in result.events if e.get("outcome") == "preempted"]
    assert eligible == [60, 120]
    assert ends(result, 1)[-1] == (1000 + 60 + 120, "completed")


def test_a_slow_start_is_paid_for_again(run: Run) -> None:
    result = run([job(1000), tick(300)], discipline=stopping({300: 1}), latency=30)
    assert next(event["done_s"] for event in result.events if event["event"] == "resume") == 390
    assert ends(result, 1)[-1] == (480 + 30 + 610, "completed")


def test_a_stop_during_the_slow_start_keeps_what_was_done_before(run: Run) -> None:
    result = run([job(1000), tick(10)], discipline=stopping({10: 1}), latency=300)
    assert next(event["done_s"] for event in result.events if event["event"] == "resume") == 0


def test_it_is_in_the_queue_again_with_its_submit_time(run: Run) -> None:
    seen: list[Seconds] = []

    def decide(snapshot: Snapshot, now: Seconds, standing: Standing) -> Plan:
        seen.extend(work.submitted for work in snapshot.waiting if work.id == 1 and now > MONDAY + 400)
        return stopping({300: 1}).fill(snapshot, now, standing)

    run([job(1000), tick(300), tick(450)], discipline=Discipline("by hand", decide, None))
    assert set(seen) == {MONDAY}
