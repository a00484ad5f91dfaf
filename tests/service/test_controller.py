"""When the scheduler is asked, and that its answers are carried out only while they hold."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.ledger.records import CardRecord, LeaseRecord, NewJob
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.scheduler.model import (
    GpuShare,
    Placement,
    Plan,
    Reason,
    Request,
    Snapshot,
    Start,
    Verdict,
)
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.service import controller as module
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.policy_store import PolicyStore
from tests.service.fake_engine import Clock

NOTHING = Plan((), (), (), {})
NIGHT = """
calendars: {night: {weekly: ["Mon-Sun 20:00-08:00"]}}
partitions: {all: {gpus: ["*:*"], for: [job]}}
groups: {everyone: {quota: {gpus: 2}}}
"""


class Scheduler:
    """Does what the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.filled: list[list[int]] = []
        self.planned: list[list[int]] = []
        self.on_fill: Callable[[Snapshot], Plan] = lambda snapshot: NOTHING
        self.on_plan: Callable[[Snapshot], Plan] = lambda snapshot: NOTHING

    def fill(self, snapshot: Snapshot, now: int, standing: Standing) -> Plan:
        self.filled.append([work.id for work in snapshot.waiting])
        return self.on_fill(snapshot)

    def plan(self, snapshot: Snapshot, now: int) -> Plan:
        self.planned.append([work.id for work in snapshot.waiting])
        return self.on_plan(snapshot)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    found = Scheduler()
    monkeypatch.setattr(module, "fill", found.fill)
    monkeypatch.setattr(module, "plan", found.plan)
    return found


@pytest.fixture
def play(home: Home, scheduler: Scheduler, clock: Clock) -> Callable[..., None]:
    def run(scenario: Callable[[Controller, list[LeaseRecord]], Any], policy: str | None = None) -> None:
        async def whole() -> None:
            pool = SimulatedPool.parse("1x2x8GiB")
            if policy:
                (home.path / "policy.yaml").write_text(policy)
            ledger = Ledger.open(home.path / "ledger.sqlite", now=int(clock()), boot_id="b")
            ledger.set_cards(CardRecord(c.uuid, c.node, c.index, c.model, c.memory_mib) for c in pool.cards())
            policies = PolicyStore(home.path / "policy.yaml", home.path / "history", pool)
            policies.refresh(int(clock()))
            started: list[LeaseRecord] = []
            asked: list[LeaseRecord] = []
            controller = Controller(
                ledger, policies, pool, started.extend, asked.extend, lambda: None, clock=clock
            )
            try:
                await asyncio.wait_for(scenario(controller, started), 20)
            finally:
                await controller.close()
                ledger.close()

        asyncio.run(whole())

    return run


def add(controller: Controller, **changes: Any) -> int:
    values: dict[str, Any] = {
        "owner": "ada",
        "group": "everyone",
        "name": "j",
        "kind": "command",
        "priority": "normal",
        "limit_s": 3600,
        "grace_s": 1,
        "request": Request(gpus=1),
        "entry": {"argv": ["true"]},
        "workdir": "/",
    }
    return controller.ledger.add_job(NewJob(**values | changes), controller.now).id


def start(work: int, card: int = 0) -> Start:
    return Start(work, Placement(("node1",), (GpuShare(f"SIM-node1-{card}", 8192),), 1000, "all"))


async def until(look: Callable[[], Any], wanted: Any = True) -> None:
    while look() != wanted:
        await asyncio.sleep(0.002)


def test_many_submits_in_one_turn_are_one_fill_and_one_plan(play: Any, scheduler: Scheduler) -> None:
    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        controller.open()
        await until(lambda: len(scheduler.planned), 1)
        scheduler.filled.clear()
        ids = [add(controller) for _ in range(20)]
        for id in ids:
            controller.submitted(id)
        await until(lambda: len(scheduler.planned), 2)
        assert scheduler.filled == [ids]
        assert scheduler.planned[1] == ids

    play(scenario)


def test_after_a_submit_only_what_is_new_is_looked_at(play: Any, scheduler: Scheduler) -> None:
    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        controller.open()
        old = add(controller)
        controller.submitted(old)
        await until(lambda: scheduler.planned and scheduler.planned[-1], [old])
        await asyncio.sleep(0.01)
        scheduler.filled.clear()
        new = add(controller)
        controller.submitted(new)
        await until(lambda: scheduler.filled, [[new]])
        controller.changed()
        await until(lambda: scheduler.filled[-1], [old, new])

    play(scenario)


def test_a_start_is_in_the_ledger_before_it_is_told(play: Any, scheduler: Scheduler) -> None:
    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        scheduler.on_fill = lambda snapshot: Plan(
            tuple(start(work.id) for work in snapshot.waiting), (), (), {}
        )
        controller.open()
        id = add(controller)
        controller.submitted(id)
        await until(lambda: [lease.work for lease in started], [id])
        assert started[0] == controller.ledger.leases[started[0].id]
        assert (started[0].mode, started[0].charge_milli) == ("simulated", 1000)
        assert controller.ledger.jobs[id].state == "starting"

    play(scenario)


def test_a_start_that_does_not_fit_the_ledger_starts_nothing(play: Any, scheduler: Scheduler) -> None:
    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        controller.open()
        first, second = add(controller), add(controller)
        scheduler.on_fill = lambda snapshot: Plan((start(first), start(second)), (), (), {})
        controller.fill_now()
        assert started == []
        assert controller.ledger.jobs[first].state == "queued"

    play(scenario)


def test_the_starts_of_a_whole_plan_are_looked_at_again_first(play: Any, scheduler: Scheduler) -> None:
    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        controller.open()
        await until(lambda: len(scheduler.planned), 1)
        id = add(controller)
        scheduler.on_plan = lambda snapshot: Plan((start(id),), (), (), {})
        scheduler.filled.clear()
        controller.submitted(id)
        await until(lambda: len(scheduler.filled) >= 2)
        assert started == []
        assert scheduler.filled[1] == [id]

    play(scenario)


def test_a_verdict_about_what_has_changed_since_is_dropped(play: Any, scheduler: Scheduler) -> None:
    began, go_on = threading.Event(), threading.Event()

    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        def slow(snapshot: Snapshot) -> Plan:
            began.set()
            go_on.wait(10)
            verdicts = {w.id: Verdict(w.id, Reason.RESOURCES, {}, 1, None, False) for w in snapshot.waiting}
            return Plan((), (), (), verdicts)

        kept, held = add(controller), add(controller)
        scheduler.on_plan = slow
        controller.open()
        await until(began.is_set)
        controller.ledger.hold(held, "by ada", controller.now)
        go_on.set()
        await until(lambda: controller.forecast.of(kept) is not None)
        assert controller.forecast.of(held) is None

    play(scenario)


def test_requests_are_answered_while_a_plan_is_made(play: Any, scheduler: Scheduler) -> None:
    began, go_on = threading.Event(), threading.Event()

    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        def slow(snapshot: Snapshot) -> Plan:
            began.set()
            go_on.wait(10)
            return NOTHING

        scheduler.on_plan = slow
        controller.open()
        await until(began.is_set)
        scheduler.on_fill = lambda snapshot: Plan((start(snapshot.waiting[0].id),), (), (), {})
        id = add(controller)
        controller.submitted(id)
        await until(lambda: [lease.work for lease in started], [id])
        assert not go_on.is_set()
        go_on.set()

    play(scenario)


def test_who_waits_for_the_plan_need_not_wait_for_the_rest(
    play: Any, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_REST_S", 3600)

    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        controller.open()
        await until(lambda: len(scheduler.planned), 1)
        await asyncio.sleep(0.01)
        controller.submitted(add(controller))
        await asyncio.sleep(0.05)
        assert len(scheduler.planned) == 1
        controller.hurry()
        await until(lambda: len(scheduler.planned), 2)

    play(scenario)


def test_a_plan_that_fails_is_not_the_last(play: Any, scheduler: Scheduler) -> None:
    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        def broken(snapshot: Snapshot) -> Plan:
            raise ValueError

        scheduler.on_plan = broken
        controller.open()
        await until(lambda: len(scheduler.planned), 1)
        scheduler.on_plan = lambda snapshot: NOTHING
        controller.submitted(add(controller))
        await until(lambda: len(scheduler.planned) >= 2)

    play(scenario)


def test_a_window_that_opens_is_noticed(play: Any, scheduler: Scheduler, clock: Clock) -> None:
    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        edge = controller.frame.next_edge(controller.now)
        assert edge is not None
        clock.now = edge - 0.05
        controller.open()
        add(controller)
        await until(lambda: len(scheduler.planned), 1)
        await asyncio.sleep(0.02)
        scheduler.filled.clear()
        clock.now = edge + 0.01
        await until(lambda: bool(scheduler.filled))
        assert controller.frame.made == edge

    play(scenario, NIGHT)


def test_the_end_of_a_back_off_is_noticed(play: Any, scheduler: Scheduler, clock: Clock) -> None:
    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        scheduler.on_fill = lambda snapshot: Plan(tuple(start(w.id) for w in snapshot.waiting), (), (), {})
        id = add(controller)
        controller.open()
        await until(lambda: [lease.work for lease in started], [id])
        scheduler.on_fill = lambda snapshot: NOTHING
        later = controller.now + 1
        controller.ledger.requeue_job(id, 1, "again", controller.now, not_before=later)
        controller.changed([id])
        await asyncio.sleep(0.02)
        scheduler.filled.clear()
        clock.now = later + 0.01
        await until(lambda: bool(scheduler.filled))

    play(scenario)


def test_the_moment_that_a_plan_names_is_noticed(
    play: Any, scheduler: Scheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody needs to wait: a job on a lent card must leave at night's end."""
    later = int(clock.now) + 2
    monkeypatch.setattr(module, "next_moment", lambda snapshot, now: later if now < later else None)

    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        scheduler.on_fill = lambda snapshot: Plan(tuple(start(w.id) for w in snapshot.waiting), (), (), {})
        add(controller)
        controller.open()
        await until(lambda: len(scheduler.planned) >= 1 and len(started) == 1)
        await asyncio.sleep(0.02)
        frame = controller.frame
        scheduler.filled.clear()
        clock.now = later
        await until(lambda: scheduler.filled, [[]])
        assert controller.frame is frame

    play(scenario)


def test_the_same_request_is_judged_once(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(module, "refusal", lambda work, snapshot, **more: asked.append(len(snapshot.waiting)))

    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        add(controller)
        one = controller.ledger.waiting()[0]
        for _ in range(3):
            controller.refusal(one, count_queue=False)
        assert asked == [0]
        controller.refusal(one, count_queue=True)
        assert asked == [0, 1]

    play(scenario)


def test_passes_leave_time_for_requests(play: Any, scheduler: Scheduler) -> None:
    async def scenario(controller: Controller, started: list[LeaseRecord]) -> None:
        def slow(snapshot: Snapshot) -> Plan:
            time.sleep(0.02)
            return NOTHING

        scheduler.on_fill = slow
        controller.open()
        loop = asyncio.get_running_loop()
        give_up = loop.time() + 0.5
        while loop.time() < give_up:
            controller.submitted(add(controller))
            await asyncio.sleep(0.001)
        assert len(scheduler.filled) <= 4

    play(scenario)
