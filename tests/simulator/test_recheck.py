"""Anyone can check the figures: here they are computed again from the file of events, second by second."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jupyter_gpupool.simulator.journal import write_events
from jupyter_gpupool.simulator.peers import EASY
from jupyter_gpupool.simulator.play import Result
from jupyter_gpupool.simulator.room import Room
from jupyter_gpupool.simulator.workload import Task


def crowd(seed: int) -> list[Task]:
    """Make jobs and sessions of all sizes; some jobs need longer than their limit."""
    draw = Random(seed)
    tasks = []
    for n in range(150):
        kind = "session" if draw.random() < 0.2 else "job"
        shared = draw.random() < 0.4
        duration = draw.randrange(1, 400)
        tasks.append(
            Task(
                submit=draw.randrange(2000),
                duration=duration,
                limit=duration + draw.randrange(-duration // 4, 200) if kind == "job" else 400,
                gpus=0 if shared else draw.choice((1, 1, 2, 4)) if kind == "job" else 1,
                mib=1024 * draw.randrange(1, 20) if shared and kind == "job" else 4096 if shared else 0,
                user=f"user{n % 5}",
                kind=kind,
                window="night" if kind == "job" and draw.random() < 0.2 else None,
            )
        )
    return [task for task in tasks if task.limit > 0]


def recheck(path: Path) -> dict[str, Any]:
    """Compute every figure by counting seconds, with nothing of the simulator's."""
    pool, *events = map(json.loads, path.read_text().splitlines())
    horizon = pool["horizon_s"]
    size = {gpu["gpu"]: gpu["memory_mib"] for gpu in pool["gpus"]}
    held = {gpu: [0] * horizon for gpu in size}
    submits = {event["id"]: event for event in events if event["event"] == "submit"}
    starts = {event["id"]: event for event in events if event["event"] == "start"}
    ends = {event["id"]: event for event in events if event["event"] == "end"}
    expected = {event["id"]: event["start_t"] for event in events if event["event"] == "estimate"}
    for id, start in starts.items():
        until = ends[id]["t"] if id in ends else horizon
        for gpu in start["gpus"]:
            for second in range(start["t"], min(until, horizon)):
                held[gpu["gpu"]][second] += gpu["memory_mib"]
    for gpu, line in held.items():
        assert max(line) <= size[gpu], "no card is ever over-booked"
    done = [
        id
        for id, end in ends.items()
        if end["outcome"] == "completed" and submits[id]["kind"] == "job" and 0 < end["t"] <= horizon
    ]
    waits, slowdowns = [], []
    for id in done:
        work, stay = submits[id]["duration_s"], ends[id]["t"] - submits[id]["t"]
        waits.append(stay - work)
        slowdowns.append(max(1.0, stay / max(10, work)))
    session_waits = [
        starts.get(id, ends.get(id, {"t": horizon}))["t"] - submit["t"]
        for id, submit in submits.items()
        if submit["kind"] == "session"
    ]
    errors = sorted(
        abs(expected[id] - starts[id]["t"]) / wait
        for id in expected
        if id in starts
        and submits[id]["kind"] == "job"
        and (wait := starts[id]["t"] - submits[id]["t"]) >= 60
    )
    card_days = len(size) * horizon / 86400
    seconds_held = sum(sum(line) / size[gpu] for gpu, line in held.items())
    seconds_touched = sum(sum(1 for mib in line if mib) for line in held.values())
    half = len(errors) // 2
    return {
        "jobs_per_week": len(done) * 604800 / horizon,
        "held_hours_per_card_day": seconds_held / 3600 / card_days,
        "touched_hours_per_card_day": seconds_touched / 3600 / card_days,
        "session_wait_p95_s": sorted(session_waits)[math.ceil(0.95 * len(session_waits)) - 1],
        "job_wait_mean_s": sum(waits) / len(waits),
        "job_wait_p95_s": sorted(waits)[math.ceil(0.95 * len(waits)) - 1],
        "bounded_slowdown_mean": sum(slowdowns) / len(slowdowns),
        "eta_error_median": (errors[half] + errors[-half - 1]) / 2 if errors else None,
        "preemptions": sum(end["outcome"] == "preempted" for end in ends.values()),
    }


@pytest.mark.parametrize("setting", [{}, {"horizon": 1500}, {"latency": 30}, {"discipline": EASY}], ids=str)
def test_the_events_alone_give_every_figure(
    run: Callable[..., Result], tmp_path: Path, setting: dict[str, Any]
) -> None:
    result = run(crowd(5), plan_every=0, **setting)
    path = tmp_path / "events.jsonl"
    write_events(path, result.pool, result.events)
    for name, value in recheck(path).items():
        assert result.figures[name] == pytest.approx(value), name


@pytest.mark.parametrize("seed", range(4))
def test_passes_that_are_left_out_would_have_done_nothing(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    quick = run(crowd(seed), plan_every=500, pool="2x2x32GiB")
    monkeypatch.setattr(Room, "may_change", lambda room: True)
    assert run(crowd(seed), plan_every=500, pool="2x2x32GiB").events == quick.events


def test_events_are_in_order_of_time_and_complete(run: Callable[..., Result]) -> None:
    result = run(crowd(6), plan_every=0)
    times = [event["t"] for event in result.events]
    assert times == sorted(times)
    for event in result.events:
        assert {"t", "event", "kind", "id", "user", "group"} <= event.keys()
    assert [-4 * 3600, 8 * 3600] in result.pool["windows"]["night"], (
        "what is open at the start began before it"
    )
    starts = [event for event in result.events if event["event"] == "start"]
    assert all({"gpus", "partition", "borrowed", "lent"} <= start.keys() for start in starts)
    assert len({start["id"] for start in starts}) == len(starts), "nothing is started twice"


@pytest.mark.parametrize("setting", [{}, {"plan_every": 0}, {"latency": 20}], ids=str)
def test_nobody_starts_later_than_promised_without_a_named_cause(
    run: Callable[..., Result], setting: dict[str, Any]
) -> None:
    promised: dict[int, int] = {}
    causes: dict[int, str] = {}
    late = set()
    for event in run(crowd(7), **setting).events:
        id, t = event["id"], event["t"]
        if event["event"] == "promise":
            if event["cause"]:
                causes[id] = event["cause"]
                late.add(event["cause"].split()[0])
            else:
                assert event["start_t"] <= promised.get(id, event["start_t"])
                causes.pop(id, None)
            promised[id] = event["start_t"]
        elif event["event"] == "start" and id in promised:
            assert t <= promised[id] or id in causes
    assert promised
    assert late == {"session"}
