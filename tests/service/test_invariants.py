"""Invariants 1, 5, 9 and 10 over random histories of a service that is killed between any two steps."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.devices.base import Process
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.engines.base import Ended, EngineError
from jupyter_gpupool.ledger.errors import IllegalTransition
from jupyter_gpupool.ledger.records import Job, JobState, NewJob
from jupyter_gpupool.scheduler.model import Request
from jupyter_gpupool.service import controller, core
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.core import Service, open_service
from tests.service.faulty import Attempt, Crash, FaultyEngine, Fuse, Inline, VirtualLoop, commits_burn

BEGIN = 1_800_000_000
NOBODY = 2**22 + 1  # no process has this number
GIB, GRACE_S = 1024, 7
POLICY = """
partitions: {all: {gpus: ["*:*"], for: [session, job]}}
groups: {a: {quota: {gpus: %s}}, b: {quota: {gpus: %s}}}
priorities: {normal: {value: 0}, urgent: {value: 100, preempts: true, charge: 2}}
jobs: {min_run_time: 1m, borrow_max_time: 30m, grace: 30s}
"""
NUMBERS = list(range(12))
YES_NO = [True, False]
ENDS = {
    "fine": {"exit_code": 0},
    "fails": {"exit_code": 3},
    "killed": {"exit_code": None, "signal": 9},
    "limit": {"exit_code": None, "signal": 15, "cause": "limit"},
    "lost": {"exit_code": None, "cause": "lost", "message": "The job's runner was killed."},
}
STEPS: list[tuple[int, str, dict[str, list[Any]]]] = [
    (
        5,
        "submit",
        {
            "request": [
                Request(gpus=1),
                Request(gpus=1),
                Request(gpus=2),
                Request(gpu_mib=3 * GIB),
                Request(),
            ],
            "group": ["a", "b"],
            "limit_s": [60, 600, 7200],
            "resumable": [True, True, False],
            "priority": ["normal", "normal", "normal", "urgent"],
            "retries": [0, 0, 1],
            "many": [1, 1, 3],
        },
    ),
    (3, "come_while_another_group_borrows", {"group": ["a", "b"], "punctual": YES_NO}),
    (8, "wait", {"seconds": [0, 1, 20, 70, 130, 700], "punctual": [True, True, False]}),
    (2, "end", {"number": NUMBERS, "how": list(ENDS), "told": YES_NO, "gone": [True, True, False]}),
    (2, "leave_as_asked", {"number": NUMBERS, "finished": [False, False, True], "told": YES_NO}),
    (2, "last_process_goes", {"number": NUMBERS, "told": YES_NO}),
    (1, "memory_lingers", {"number": NUMBERS}),
    (1, "memory_is_freed", {}),
    (2, "cancel", {"number": NUMBERS}),
    (1, "hold_or_release", {"number": NUMBERS}),
    (2, "save", {"number": NUMBERS}),
    (4, "light_the_fuse", {"left": [1, 1, 2, 3, 4, 6, 9], "moment": ["before", "after"]}),
    (2, "kill", {}),
    (1, "reboot", {}),
    (1, "go_deaf_or_hear", {"deaf": YES_NO}),
    (1, "fail_to_start", {"times": [1, 2]}),
    (1, "step_the_clock", {"seconds": [-100, -3, 50]}),
    (1, "change_policy", {"a": [0, 1, 1, 2], "b": [0, 1, 1, 2]}),
]


class RealPool(SimulatedPool):
    """Cards that processes can be on."""

    simulated = False
    on_cards: list[Process]

    def processes(self) -> list[Process]:
        return list(self.on_cards)


class Trial:
    """One home, the truth about what runs, and the service as long as it lives."""

    def __init__(self) -> None:
        self.exit = ExitStack()
        shared = Path("/dev/shm")
        folder = tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else None)
        self.exit.callback(shutil.rmtree, folder)
        self.home = Home(Path(folder) / "h")
        self.home.make()
        self.fuse = Fuse()
        self.exit.enter_context(commits_burn(self.fuse))
        self.exit.enter_context(patch.object(controller, "ThreadPoolExecutor", Inline))
        take = patch.object(core.CardLocks, "take", lambda uuids, home: core.CardLocks([], advisory=True))
        self.exit.enter_context(take)
        self.engine = FaultyEngine(self.home.path / "jobs", self.fuse)
        self.loop = VirtualLoop()
        self.exit.callback(self.loop.close)
        self.loop.set_exception_handler(lambda loop, context: None)
        self.pool = RealPool.parse("1x2x8GiB")
        self.pool.on_cards = []
        self.skew = 0
        self.boot = 1
        self.submitted: dict[int, int] = {}
        self.stops: dict[int, int] = {}
        self.ends: dict[int, Job] = {}
        self.service: Service | None = None
        self.change_policy(1, 1)
        self.begin()

    def close(self) -> None:
        self.kill()
        self.exit.close()

    # -- the service's life

    def clock(self) -> float:
        return BEGIN + self.loop.time() + self.skew

    @property
    def now(self) -> int:
        return int(self.clock())

    def begin(self) -> None:
        """Open the service, again if it is killed meanwhile."""
        while self.service is None:
            self.stack = AsyncExitStack()
            config = ServiceConfig(self.home, "1x2x8GiB", boot_id=f"boot-{self.boot}")
            opening = open_service(
                self.stack,
                config,
                clock=self.clock,
                monotonic=self.loop.time,
                pool=self.pool,
                engine=self.engine,  # type: ignore[arg-type]
            )
            try:
                self.service = self.loop.run_until_complete(opening)
            except (Crash, EngineError):
                self.engine.deaf = False
                self.kill()

    def kill(self) -> None:
        """Let the service die as it is: what it still does has no effect."""
        self.fuse.dead = True
        self.service = None
        self.loop.run_until_complete(self._bury())
        self.fuse.renew()

    async def _bury(self) -> None:
        try:
            await self.stack.aclose()
        except BaseException:
            pass
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def run(self, seconds: float = 0.0) -> None:
        """Let the service go on until it has nothing more to do, for a while, or until it is killed."""
        until = self.loop.time() + seconds + 0.5
        while not self.fuse.dead and self.loop.time() < until:
            self.loop.run_until_complete(asyncio.sleep(min(1.0, until - self.loop.time())))
        if self.fuse.dead:
            self.kill()
            self.begin()

    def do(self, step: Callable[[Service], Any]) -> Any:
        """Do something to the service, which may be killed in the middle of it; then None."""
        assert self.service is not None

        async def now() -> Any:
            found = step(self.service)
            return await found if asyncio.iscoroutine(found) else found

        try:
            return self.loop.run_until_complete(now())
        except (Crash, EngineError, IllegalTransition):
            return None

    @property
    def jobs(self) -> list[Job]:
        assert self.service is not None
        return list(self.service.ledger.jobs.values())

    # -- what happens

    def submit(self, many: int, **changes: Any) -> None:
        new = NewJob(
            owner="ada",
            name="j",
            kind="command",
            grace_s=GRACE_S,
            entry={"argv": ["true"]},
            workdir="/",
            interpreter={"python": "/usr/bin/python3"},
            **changes,
        )
        for _ in range(many):
            job = self.do(lambda service: service.ledger.add_job(new, service.now))
            if job is None:
                return
            self.submitted[job.id] = job.submitted
            self.do(lambda service, id=job.id: service.controller.submitted(id))

    def come_while_another_group_borrows(self, group: str, punctual: bool) -> None:
        """A group gets both cards, then the other wants the one that it owns."""
        alike = {"request": Request(gpus=1), "limit_s": 7200, "priority": "normal", "retries": 0}
        self.submit(2, group=group, resumable=True, **alike)
        self.wait(70, punctual=False)
        self.submit(1, group="b" if group == "a" else "a", resumable=False, **alike)
        self.wait(1, punctual=punctual)

    def wait(self, seconds: int, punctual: bool) -> None:
        """Time passes; a `punctual` engine then has ended whom it was asked to end."""
        self.run(seconds)
        if punctual:
            self.run(GRACE_S)
            self.check()
            while any(one.asked and one.ended is None for one in self.engine.live):
                self.leave_as_asked(0, finished=False, told=True)

    def end(self, number: int, how: str, told: bool, gone: bool) -> None:
        running = [one for one in self.engine.live if one.ended is None]
        if running:
            self._over(running[number % len(running)], told, gone, **ENDS[how])

    def leave_as_asked(self, number: int, finished: bool, told: bool) -> None:
        asked = [one for one in self.engine.live if one.asked and one.ended is None]
        if asked:
            attempt = asked[number % len(asked)]
            how = {"exit_code": 0} if finished else {"exit_code": None, "signal": 15}
            self._over(attempt, told, True, cause=attempt.asked, **how)

    def _over(self, attempt: Attempt, told: bool, gone: bool, **how: Any) -> None:
        plain = Ended(attempt.key, 0, None, "exit", "", None, False, self.clock(), gone)
        ended = replace(plain, **how)
        self.do(lambda service: self.engine.over(attempt, ended, told=told))

    def last_process_goes(self, number: int, told: bool) -> None:
        ending = [one for one in self.engine.live if one.ended is not None]
        if ending:
            attempt = ending[number % len(ending)]
            self.do(lambda service: self.engine.gone(attempt, told=told))

    def memory_lingers(self, number: int) -> None:
        uuid = f"SIM-node1-{number % 2}"
        self.pool.on_cards.append(Process(NOBODY, uuid, 100, "compute"))

    def memory_is_freed(self) -> None:
        self.pool.on_cards.clear()

    def cancel(self, number: int) -> None:
        jobs = [job for job in self.jobs if not job.state.ended]
        if jobs:
            job = jobs[number % len(jobs)]
            if job.state.live:
                self.do(lambda service: service.runs.stop(job, "cancel", "Cancelled."))
            else:
                self.do(lambda service: service.ledger.cancel_queued(job.id, "Cancelled.", service.now))

    def hold_or_release(self, number: int) -> None:
        jobs = [job for job in self.jobs if job.state.waiting]
        if jobs:
            job = jobs[number % len(jobs)]
            if job.state is JobState.HELD:
                self.do(lambda service: service.ledger.release(job.id, service.now))
            else:
                self.do(lambda service: service.ledger.hold(job.id, "by ada", service.now))
            self.do(lambda service: service.controller.changed([job.id]))

    def save(self, number: int) -> None:
        """A job writes a checkpoint."""
        if self.engine.live:
            folder = self.home.path / "jobs" / str(self.engine.live[number % len(self.engine.live)].job)
            (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
            (folder / "checkpoint" / "model").write_text("")
            os.utime(folder / "checkpoint" / "model", (self.clock(), self.clock()))

    def light_the_fuse(self, left: int, moment: str) -> None:
        self.fuse.light(left, moment)

    def kill_now(self) -> None:
        self.kill()
        self.begin()

    def reboot(self) -> None:
        """The machine starts again: no process is left, and the engine knows what it had begun."""
        self.kill()
        for attempt in self.engine.live:
            plain = Ended(attempt.key, None, None, "reboot", "", None, False, self.clock(), True)
            self.engine.over(attempt, replace(attempt.ended or plain, tree_gone=True), told=False)
        self.pool.on_cards.clear()
        self.boot += 1
        self.begin()

    def go_deaf_or_hear(self, deaf: bool) -> None:
        self.engine.deaf = deaf

    def fail_to_start(self, times: int) -> None:
        self.engine.failing = [EngineError("The launcher starts nothing now.")] * times

    def step_the_clock(self, seconds: int) -> None:
        self.skew += seconds

    def change_policy(self, a: int, b: int) -> None:
        (self.home.path / "policy.yaml").write_text(POLICY % (a, b))

    # -- what holds

    def check(self) -> None:
        assert self.service is not None
        ledger = self.service.ledger
        for check in (self._jobs_are_kept, self._once, self._leases, self._outcomes, self._stopped):
            check(ledger)

    def _jobs_are_kept(self, ledger: Any) -> None:
        """10, 5: no job is lost, and each keeps its submit time."""
        assert {id: ledger.jobs[id].submitted for id in self.submitted} == self.submitted

    def _once(self, ledger: Any) -> None:
        """10: of one job never two attempts run at once, and no attempt begins twice."""
        assert not self.engine.wrong, self.engine.wrong
        assert all(attempt.begun == 1 for attempt in self.engine.attempts.values())

    def _leases(self, ledger: Any) -> None:
        """1, 9: while a process is left its lease is, and the leases of a card fit on it."""
        leases = {lease.key: lease for lease in ledger.leases.values() if lease.kind == "job"}
        for attempt in self.engine.live:
            assert leases[attempt.key].live, f"{attempt.key} has processes, and its lease is free"
        for uuid in ("SIM-node1-0", "SIM-node1-1"):
            there = [
                (lease, share.mib)
                for lease in ledger.leases.values()
                for share in lease.placement.gpus
                if lease.live and share.uuid == uuid
            ]
            assert sum(mib for _, mib in there) <= 8 * GIB, there
            assert len(there) < 2 or not any(lease.whole for lease, _ in there), there

    def _outcomes(self, ledger: Any) -> None:
        """10: an outcome is what the engine saw last of the job, and stays."""
        for job in ledger.jobs.values():
            known = self.ends.get(job.id)
            assert known is None or known == job, f"{known} became {job}"
            if job.state.ended:
                self.ends[job.id] = job
                attempt = self.engine.attempts.get(f"{job.id}/{job.attempt}")
                assert job.state in fates(attempt, job), (job, attempt)

    def _stopped(self, ledger: Any) -> None:
        """5: who was stopped for others rests, longer each time, and is held after two stops in vain."""
        for job in ledger.jobs.values():
            if job.stops > self.stops.get(job.id, 0):
                self.stops[job.id] = job.stops
                if job.state.waiting:
                    rest = min(60 * 2 ** (job.stops - 1), 1800)
                    assert job.not_before <= self.now + rest + 100, (job, self.now)
            assert job.in_vain < 2


def fates(attempt: Attempt | None, job: Job) -> set[JobState]:
    """Return what may be said of a job whose last attempt ended so."""
    if attempt is None or attempt.ended is None:
        return {JobState.CANCELLED, JobState.FAILED} if attempt is None else set()
    end = attempt.ended
    if end.exit_code == 0:
        return {JobState.COMPLETED, JobState.CANCELLED}
    if end.cause in ("stop", "reboot"):
        return {JobState.CANCELLED}
    return {
        "cancel": {JobState.CANCELLED},
        "limit": {JobState.TIMED_OUT},
        "exit": {JobState.FAILED, JobState.CANCELLED},
        "lost": {JobState.FAILED},
    }[end.cause]


def settled(trial: Trial) -> None:
    """10: once all goes well, every job that nobody holds comes to its end."""
    trial.engine.deaf, trial.engine.failing = False, []
    trial.memory_is_freed()
    trial.change_policy(2, 2)
    trial.fuse.renew()
    trial.kill_now()  # an end that was not told is told by the engine's list
    for _ in range(60):
        trial.run(600)
        trial.check()
        waits = [job for job in trial.jobs if not job.state.ended and job.state is not JobState.HELD]
        if not waits and not trial.engine.live:
            return
        for attempt in trial.engine.live:
            if attempt.ended:
                trial.do(lambda service, attempt=attempt: trial.engine.gone(attempt, told=True))
            else:
                trial._over(attempt, True, True)
    raise AssertionError(f"these never end: {waits}, {trial.engine.live}")


def choose(choices: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: st.sampled_from(values) for name, values in choices.items()})


class Machine(RuleBasedStateMachine):
    """Lets things happen in any order."""

    @initialize()
    def begin(self) -> None:
        self.trial = Trial()

    @rule(
        step=st.one_of(
            [st.tuples(st.just(what), choose(how)) for many, what, how in STEPS for _ in range(many)]
        )
    )
    def happens(self, step: tuple[str, dict[str, Any]]) -> None:
        what, how = step
        getattr(self.trial, "kill_now" if what == "kill" else what)(**how)
        self.trial.run()
        self.trial.check()

    def teardown(self) -> None:
        if hasattr(self, "trial"):
            try:
                settled(self.trial)
            finally:
                self.trial.close()


def test_no_job_is_lost_or_started_twice_whatever_is_killed() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
