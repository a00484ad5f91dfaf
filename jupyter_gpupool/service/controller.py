"""The loop that joins policy, scheduler, ledger and engine.

Owns: when the scheduler is asked, and that its answers come true: free room is filled at once after a
submission or an end; a whole plan, with reasons and expected starts, follows off the request path.
Never: a decision on who runs next, a request, a file of a job.

Everything here runs in the event loop but `plan`, which reads only immutable values.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from jupyter_gpupool.devices.base import Pool
from jupyter_gpupool.devices.modes import mode_of
from jupyter_gpupool.frame import Frame, frame_of
from jupyter_gpupool.ledger import LedgerError, LedgerUnavailable
from jupyter_gpupool.ledger.records import LeaseRecord, NewSession, SessionRecord, StartOrder
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.admission import Refusal, refusal
from jupyter_gpupool.scheduler.model import Plan, Snapshot, Start, Work
from jupyter_gpupool.scheduler.moments import next_moment
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.forecast import Forecast
from jupyter_gpupool.service.grants import current
from jupyter_gpupool.service.policy_store import PolicyStore
from jupyter_gpupool.service.standing import over_quota
from jupyter_gpupool.service.stopping import orders

log = logging.getLogger("gpupool")

TICK_S = 5.0
PLAN_REST = 4.0
FILL_REST = 9.0
"""After a pass of t seconds the next waits for REST·t: requests keep their share of the CPU."""
LEAST_REST_S = 0.05
STALE_S = 300
RETRY_S = 1.0
AGES_AT_ONCE = 500
REFUSALS_KEPT = 1000


class Controller:
    """Asks the scheduler and carries out what it says.

    Parameters
    ----------
    clock
        Seconds since the epoch.
    on_started
        Called with the new leases, in the event loop, after they are in the ledger.
    on_asked
        Called, likewise, with the leases whose jobs are to leave for others.
    on_policy
        Called when another policy has come into force.
    on_pass
        Called before each pass, and after one that has started something, to put the queue in order.
    """

    def __init__(
        self,
        ledger: Ledger,
        policies: PolicyStore,
        pool: Pool,
        on_started: Callable[[list[LeaseRecord]], None],
        on_asked: Callable[[list[LeaseRecord]], None],
        on_policy: Callable[[], None],
        on_pass: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ):
        self.ledger = ledger
        self.policies = policies
        self.pool = pool
        self.forecast = Forecast()
        self.trouble: str | None = None
        self.plan_seconds = 0.0
        self._clock = clock
        self._on_started = on_started
        self._on_asked = on_asked
        self._on_policy = on_policy
        self._on_pass = on_pass
        self._slots = len(os.sched_getaffinity(0)) if pool.simulated else None
        self.health: dict[str, str] = pool.healthy()
        self.frame = self._frame(self.policy)
        self._edge = self._next_edge()
        self._edge_moved = asyncio.Event()
        self._standing = Standing()
        self._unplanned: set[int] = set()
        self._fill_handle: asyncio.TimerHandle | None = None
        self._fill_all = False
        self._paused = False
        self._fill_after = 0.0
        self._plan_wanted = asyncio.Event()
        self._hurry = asyncio.Event()
        self._refusals: dict[Work, Refusal | None] = {}
        self._plan_at = 0
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="gpupool-plan")
        self._tasks: list[asyncio.Task[None]] = []

    # -- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to plan; whatever runs already must be in the ledger by now."""
        self._tasks = [asyncio.create_task(self._plan_forever()), asyncio.create_task(self._tick_forever())]
        self.changed()

    async def close(self) -> None:
        """Stop planning; what runs goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._fill_handle:
            self._fill_handle.cancel()
        self._worker.shutdown(wait=True, cancel_futures=True)

    def pause(self) -> None:
        """Start nothing more."""
        self._paused = True

    @property
    def now(self) -> int:
        """The present, in whole seconds."""
        return int(self._clock())

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.policies.policy

    # -- what has happened -----------------------------------------------------------------------

    def submitted(self, work: int) -> None:
        """Something new waits: start it if there is room; the plan follows."""
        self._unplanned.add(work)
        self._plan_wanted.set()
        loop = asyncio.get_running_loop()
        self._fill_at(max(loop.time(), self._fill_after), everything=False)

    def add_session(self, new: NewSession) -> SessionRecord:
        """Queue a session and give it its lease at once if there is room.

        Raises
        ------
        LedgerUnavailable
            It cannot be written down; nothing has changed.
        """
        session = self.ledger.add_session(new, self.now)
        self.submitted(session.id)
        self.fill_now()
        return self.ledger.sessions[session.id]

    def hurry(self) -> None:
        """Somebody waits for the next plan."""
        self._hurry.set()

    def changed(self, works: Iterable[int] = ()) -> None:
        """Room became free, or the order of things changed: fill at once, then plan.

        Parameters
        ----------
        works
            Work about which the last plan's word no longer holds.
        """
        works = list(works)
        self.forecast.drop(works)
        for work in works:
            job = self.ledger.jobs.get(work)
            if job and job.state.waiting and job.not_before > self.now:
                self._expect(job.not_before)
        self._plan_wanted.set()
        self._fill_at(0.0, everything=True)

    def refresh_policy(self) -> bool:
        """Look at the policy file; when another policy is in force, plan by it."""
        if not self.policies.refresh(self.now):
            return False
        self._reframe()
        self.changed()
        self._on_policy()
        return True

    def granted(self) -> None:
        """Something was granted, or has ended: plan by it."""
        self._reframe()
        self.changed()

    # -- asking ----------------------------------------------------------------------------------

    def refusal(self, work: Work, *, count_queue: bool, tasks: int = 1) -> Refusal | None:
        """Say why work, not in the ledger yet, cannot be accepted.

        Parameters
        ----------
        work
            With `id` and `submitted` 0, so that equal requests are judged once.
        count_queue
            Whether its user's queue is bounded, and so must be counted.
        tasks
            How many works like it are submitted together.
        """
        if count_queue:
            unborn = self.ledger.arrays.unborn(work.user, work.group)
            return refusal(work, self.snapshot(self.now), tasks=tasks, unborn=unborn)
        if work not in self._refusals:
            if len(self._refusals) >= REFUSALS_KEPT:
                self._refusals.clear()
            self._refusals[work] = refusal(work, self.snapshot(self.now, waiting=()))
        return self._refusals[work]

    # -- filling ---------------------------------------------------------------------------------

    def fill_now(self) -> None:
        """Start what can start, before returning."""
        if self._fill_handle:
            self._fill_handle.cancel()
            self._fill_handle = None
        everything, self._fill_all = self._fill_all, False
        if not self.policies.usable or self._paused:
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            self._fill(everything)
        except Exception:
            log.exception("A pass failed; the next one comes with the next change")
            self._standing = Standing()
        ended = loop.time()
        self._fill_after = ended + FILL_REST * (ended - began)

    def _fill(self, everything: bool) -> None:
        self._put_in_order()
        now = self.now
        snapshot = self.snapshot(now)
        if not everything:
            snapshot = self._only_new(snapshot)
        if snapshot.waiting or (everything and snapshot.leases):  # who must leave, leaves for nobody too
            found = fill(snapshot, now, self._standing)
            self._begin(found.starts, now)
            self._reserve(found, now)

    def snapshot(self, now: int, waiting: tuple[Work, ...] | None = None) -> Snapshot:
        """Return the pool at this moment, as the scheduler sees it; `waiting` in place of all that waits."""
        return self._snapshot(self.frame, self.policy, now, waiting)

    def snapshot_under(self, policy: Policy, now: int) -> Snapshot:
        """Return the pool at this moment as it would be under another policy."""
        return self._snapshot(self._frame(policy), policy, now, None)

    def _snapshot(self, frame: Frame, policy: Policy, now: int, waiting: tuple[Work, ...] | None) -> Snapshot:
        return frame.snapshot(
            waiting=self.ledger.waiting() if waiting is None else waiting,
            leases=self.ledger.held(),
            promises=tuple(self.ledger.promises.values()),
            usage=self.ledger.usage(now),
            budgets=self.ledger.grants.budgets(policy, now),
        )

    def _only_new(self, snapshot: Snapshot) -> Snapshot:
        """Narrow the snapshot to what can start after submissions alone.

        Nothing became free since the last pass, so whatever it left waiting still waits; only what came
        since the last plan may start, and only behind what is promised.
        """
        kept = self._unplanned | self.ledger.promises.keys()
        return replace(snapshot, waiting=tuple(work for work in snapshot.waiting if work.id in kept))

    def _put_in_order(self) -> None:
        try:
            self._on_pass()
        except LedgerUnavailable as error:
            self._wait_for_disk(error)

    def _fill_at(self, when: float, *, everything: bool) -> None:
        self._fill_all |= everything
        loop = asyncio.get_running_loop()
        if self._fill_handle:
            if self._fill_handle.when() <= when:
                return
            self._fill_handle.cancel()
        self._fill_handle = loop.call_at(when, self.fill_now)

    def _begin(self, starts: Sequence[Start], now: int) -> None:
        """Write the starts, all jobs in one commit; then let the work begin."""
        leases: list[LeaseRecord] = []
        try:
            for start in starts:
                if start.work in self.ledger.sessions:
                    order = self._order(start)
                    leases.append(
                        self.ledger.session_held(
                            start.work, start.placement, now, mode=order.mode, charge_milli=order.charge_milli
                        )
                    )
            if orders := [self._order(start) for start in starts if start.work in self.ledger.jobs]:
                leases += self.ledger.start_jobs(orders, now)
            self.trouble = None
        except LedgerUnavailable as error:
            self._wait_for_disk(error)
        except LedgerError as error:
            log.warning("A plan does not fit the ledger (%s); planning again", error)
            self._plan_wanted.set()
        if leases:
            works = [lease.work for lease in leases]
            self.forecast.drop(works)
            self._unplanned.difference_update(works)
            self._plan_wanted.set()
            self._on_started(leases)
            self._put_in_order()

    def _order(self, start: Start) -> StartOrder:
        work = self.ledger.jobs.get(start.work) or self.ledger.sessions[start.work]
        mode = mode_of(whole=work.request.gpus > 0, simulated=self.pool.simulated)
        priority = self.frame.priorities.get(work.priority)
        return StartOrder(start.work, start.placement, mode, priority.charge_milli if priority else 1000)

    def put_off(self, error: LedgerUnavailable, step: Callable[..., None], *arguments: object) -> None:
        """Say what is wrong with the disk, and take `step` again soon."""
        self._tell_trouble(error)
        asyncio.get_running_loop().call_later(RETRY_S, step, *arguments)

    def _wait_for_disk(self, error: LedgerUnavailable) -> None:
        """Say what is wrong with the disk, and fill again soon."""
        self._tell_trouble(error)
        self._fill_at(asyncio.get_running_loop().time() + RETRY_S, everything=True)

    def _tell_trouble(self, error: LedgerUnavailable) -> None:
        if self.trouble is None:
            log.warning("%s", error)
        self.trouble = str(error)

    # -- planning --------------------------------------------------------------------------------

    async def _plan_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._plan_wanted.wait()
            self._plan_wanted.clear()
            began = loop.time()
            try:
                await self._plan_once()
            except Exception:
                log.exception("A plan failed; the next one comes with the next change")
            self.plan_seconds = loop.time() - began
            await self._rest(max(LEAST_REST_S, PLAN_REST * self.plan_seconds))

    async def _rest(self, seconds: float) -> None:
        """Leave the CPU to requests for a while, unless somebody waits for the next plan."""
        self._hurry.clear()
        await _either(self._hurry, seconds)

    async def _plan_once(self) -> None:
        now = self.now
        snapshot = self.snapshot(now)
        taken = set(self._unplanned)
        loop = asyncio.get_running_loop()
        found, following, over = await loop.run_in_executor(self._worker, _look_ahead, snapshot, now)
        self._expect(following)
        self._plan_at = now
        self._unplanned -= taken
        self.forecast.take(found, snapshot)
        current = {work.id: work for work in self.ledger.waiting()}
        self.forecast.drop(work.id for work in snapshot.waiting if current.get(work.id) is not work)
        self._stand(over, now)
        if not self.policies.usable:
            return
        if snapshot.promises == tuple(self.ledger.promises.values()):
            self._reserve(found, now, stop=snapshot.leases is self.ledger.held())
        await self._count_ages(found, now)
        if any(start.work in current for start in found.starts):
            self._fill_at(0.0, everything=True)  # the plan is of a moment ago: look again before starting

    def _reserve(self, found: Plan, now: int, *, stop: bool = True) -> None:
        """Keep the promises of a pass, which its starts rely on; then ask those to leave who must.

        `stop`: whether what is held is still what the pass has seen.
        """
        try:
            self.ledger.set_promises(found.promises, found.moves, now)
            asked = self.ledger.stops.ask(orders(found.stops, self.ledger), now) if stop else []
        except LedgerUnavailable as error:
            self._wait_for_disk(error)
            return
        if asked:
            self.forecast.drop(lease.taker for lease in asked if lease.taker is not None)
            self._plan_wanted.set()
            self._on_asked(asked)

    def _stand(self, over: Collection[str], now: int) -> None:
        """Keep since when groups use more than they are owed."""
        try:
            self.ledger.grants.set_over(over, now)
        except LedgerUnavailable as error:
            self._wait_for_disk(error)

    async def _count_ages(self, found: Plan, now: int) -> None:
        """Let ages grow or rest as the reasons say, a few at a time between requests."""
        reasons = [(work, verdict.reason) for work, verdict in found.verdicts.items()]
        try:
            for start in range(0, len(reasons), AGES_AT_ONCE):
                self.ledger.accrue_age(dict(reasons[start : start + AGES_AT_ONCE]), now)
                await asyncio.sleep(0)
        except LedgerUnavailable as error:
            self._wait_for_disk(error)

    # -- time passes -----------------------------------------------------------------------------

    async def _tick_forever(self) -> None:
        while True:
            self._edge_moved.clear()
            await _either(self._edge_moved, self._until_next())
            try:
                health = await aside(self.pool.healthy)
                self._tick(health)
            except LedgerUnavailable as error:
                self._wait_for_disk(error)
            except Exception:
                log.exception("A tick failed")

    def _tick(self, health: dict[str, str]) -> None:
        """Notice what changes by itself: the file, the cards' health, and what only time brings."""
        now = self.now
        if self.refresh_policy():
            return
        due = self._edge is not None and self._edge <= now
        if health != self.health or self.frame.outdated(now):
            self.health = health
            self._reframe()
            self.changed()
        elif due:
            self._edge = self._next_edge()
            self.changed()
        elif now - self._plan_at > STALE_S and self.ledger.waiting():
            self._plan_wanted.set()

    def _until_next(self) -> float:
        if self._edge is None:
            return TICK_S
        return min(TICK_S, max(0.01, self._edge - self._clock()))

    def _reframe(self) -> None:
        self.frame = self._frame(self.policy)
        self._edge = self._next_edge()
        self._refusals.clear()

    def _frame(self, policy: Policy) -> Frame:
        now = self.now
        grants = current(self.ledger, policy, now)
        return frame_of(policy, self.pool, self.health, now, self._slots, socket.gethostname(), grants)

    def _expect(self, moment: int | None) -> None:
        """Look again at that moment, unless something comes before it."""
        if moment is not None and (self._edge is None or moment < self._edge):
            self._edge = moment
            self._edge_moved.set()

    def _next_edge(self) -> int | None:
        """Return when something changes next by itself: a window's edge, a back-off's end."""
        now = self.now
        edges = [work.not_before for work in self.ledger.waiting() if work.not_before > now]
        if (edge := self.frame.next_edge(now)) is not None:
            edges.append(edge)
        return min(edges, default=None)


def _look_ahead(snapshot: Snapshot, now: int) -> tuple[Plan, int | None, frozenset[str]]:
    """Plan, and tell when a plan may be another one though nobody did anything, and who is over quota."""
    return plan(snapshot, now), next_moment(snapshot, now), over_quota(snapshot, now)


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set or the time has passed."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        pass
