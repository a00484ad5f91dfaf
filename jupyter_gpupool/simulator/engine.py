"""The virtual clock: a pool's hours, weeks or months, played as fast as the scheduler decides.

Owns: the order of what happens at one time (ends, submits with sessions first, changes of nodes and policy,
window edges, then one pass), and carrying a plan's decisions out. Never: a decision; `plan` and `fill`, which
the service calls too, or a `Discipline` to compare with, make them; nor what work does on its cards (`runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from jupyter_gpupool.devices.base import Hardware
from jupyter_gpupool.frame import Frame, Grants, frame_of
from jupyter_gpupool.ledger.age import AGE_GRAIN_S, AGEING
from jupyter_gpupool.ledger.usage import Account, Accounts, Key
from jupyter_gpupool.ledger.views import Held, Waiting
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.model import Lease, Plan, Promise, Seconds, Snapshot, Start, Stop, Usage, Work
from jupyter_gpupool.scheduler.moments import next_moment
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.simulator.entry import Entry
from jupyter_gpupool.simulator.journal import Journal
from jupyter_gpupool.simulator.room import Room
from jupyter_gpupool.simulator.runs import Resume, Runs
from jupyter_gpupool.simulator.workload import Task

REFRAME_S = 30 * 86400
"""How often the windows ahead are computed again; they are known for twice as long."""
PATIENCE_S = 60 * 86400
"""When nothing has happened for so long, what still waits waits for ever."""


def as_it_is(frame: Frame) -> Frame:
    """Return the frame."""
    return frame


@dataclass(frozen=True)
class Discipline:
    """A way to decide: the pass that starts work, the plan that estimates, and the rules it goes by.

    `in_turn` says that no job passes the first that waits.
    """

    name: str
    fill: Callable[[Snapshot, Seconds, Standing], Plan]
    plan: Callable[[Snapshot, Seconds], Plan] | None
    rules: Callable[[Frame], Frame] = as_it_is
    in_turn: bool = False


POLICY = Discipline("policy", fill, plan)


@dataclass(frozen=True)
class Change:
    """What becomes different `at` seconds after the start: another policy, or nodes that take no new work.

    Attributes
    ----------
    drains
        Why each drained node takes none, by its name; all others take work (again).
    """

    at: Seconds
    policy: Policy | None = None
    drains: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Setting:
    """A pool, a policy, and how to play.

    Attributes
    ----------
    start
        When it begins, in seconds since the epoch, UTC.
    horizon
        After how many seconds it ends; None = when all work is over.
    latency
        Seconds from a job's lease to the beginning of its work; its limit counts from there.
    resume
        Whether a job that was stopped for others keeps the work it has done.
    plan_every
        At least so many seconds lie between two whole plans, which give promises, reasons (and so age) and
        expected starts to all; other passes only fill what is free. The service plans after every change
        (0), which in a long queue takes long.
    changes
        In order of time.
    """

    pool: Hardware
    policy: Policy
    start: Seconds
    horizon: Seconds | None = None
    latency: Seconds = 0
    resume: Resume = "keep"
    plan_every: Seconds = 3600
    discipline: Discipline = POLICY
    changes: tuple[Change, ...] = ()


@dataclass(slots=True)
class Refused:
    """How many tasks could never run, and why the first of them could not."""

    count: int = 0
    because: str = ""


class Simulation:
    """One run; call `run` once, then read `journal`, `refused` and `end`."""

    def __init__(self, setting: Setting, tasks: Sequence[Task]) -> None:
        self.setting = setting
        self.journal = Journal(setting.start)
        self.refused = Refused()
        self.end = setting.start
        self._policy = setting.policy
        self._drains: Mapping[str, str] = {}
        self._tasks = tasks
        self._next = self._changed = 0
        self._waiting, self._held = Waiting(), Held()
        self._works: dict[int, Work] = {}
        self._runs = Runs(tasks, setting.start, setting.latency, setting.resume)
        self._promises: dict[int, Promise] = {}
        self._stored: dict[Key, Account] = {}
        self._accounts = Accounts(self._stored, ())
        self._due: list[tuple[Seconds, int]] = []
        self._wake: Seconds | None = None
        self._plan_at = setting.start
        self._unplanned: set[int] = set()
        self._ageing: dict[int, Seconds] = {}
        self._reframe(setting.start)

    def run(self) -> None:
        """Play until the horizon, or until all is over."""
        setting = self.setting
        last = None if setting.horizon is None else setting.start + setting.horizon
        while (now := self._soonest()) is not None and (last is None or now <= last):
            known = len(self.journal.events)
            ended = self._ends(now)
            new = self._submits(now)
            woken = self._changes(now) or (self._wake is not None and self._wake <= now)
            self._decide(now, new, freed=ended, woken=woken)
            if len(self.journal.events) > known:
                self.end = now
        if last is not None:
            self.end = last
        self.journal.close(self.end)

    # -- what happens ----------------------------------------------------------------------------

    def _soonest(self) -> Seconds | None:
        """Return when something happens next."""
        while self._due and not self._is_due(*self._due[0]):
            heappop(self._due)
        times = [self._due[0][0]] if self._due else []
        if self._next < len(self._tasks):
            times.append(self.setting.start + self._tasks[self._next].submit)
        if times and self._changed < len(self.setting.changes):
            times.append(self.setting.start + self.setting.changes[self._changed].at)
        if self._wake is not None and (times or self._wake - self.end < PATIENCE_S):
            times.append(self._wake)
        return min(times, default=None)

    def _is_due(self, time: Seconds, id: int) -> bool:
        """Say whether something ends at this time still: a run, or the waiting of a session."""
        run = self._runs.live.get(id)
        if run is not None:
            return run.until == time
        return id in self._works and self._works[id].kind == "session"

    def _ends(self, now: Seconds) -> bool:
        """End what is due: jobs that leave their cards, sessions whose people go home."""
        freed = False
        while self._due and self._due[0][0] <= now:
            time, id = heappop(self._due)
            if not self._is_due(time, id):
                continue
            if id in self._works:
                self.journal.end(now, self._leave_queue(id), "cancelled")
                freed = self._promises.pop(id, None) is not None or freed
            else:
                self._free(id, now)
                freed = True
        return freed

    def _submits(self, now: Seconds) -> list[int]:
        """Queue what is submitted now, and return it."""
        new = []
        while self._next < len(self._tasks):
            task = self._tasks[self._next]
            if self.setting.start + task.submit > now:
                break
            self._next += 1
            work = self._entry.work(self._next, task, now)
            if refusal := self._entry.refusal(work):
                self.refused.count += 1
                self.refused.because = self.refused.because or refusal.message
                continue
            self.journal.submit(now, work, task, self._eligible(work, now))
            self._join_queue(work)
            new.append(work.id)
            if work.kind == "session":
                heappush(self._due, (now + task.duration, work.id))
        return new

    def _eligible(self, work: Work, now: Seconds) -> Seconds | None:
        """Return when the work's window is open, from `now` on."""
        if work.window is None:
            return now
        return next((max(now, t0) for t0, t1 in self.frame.windows[work.window] if t1 > now), None)

    def _changes(self, now: Seconds) -> bool:
        """Let nodes and policy become what they are from now on; say whether something did."""
        changes, first = self.setting.changes, self._changed
        while self._changed < len(changes) and self.setting.start + changes[self._changed].at <= now:
            change = changes[self._changed]
            self._changed += 1
            if change.policy is not None:
                self._policy = change.policy
                self.journal.policy(now, change.policy)
            if change.drains is not None:
                self.journal.nodes(now, self._drains, change.drains)
                self._drains = change.drains
        if self._changed > first or now - self.frame.made > REFRAME_S:
            self._reframe(now)
        return self._changed > first

    def _reframe(self, now: Seconds) -> None:
        """See the pool as it is from now on."""
        grants = Grants(drains=self._drains)
        self.frame = frame_of(self._policy, self.setting.pool, {}, now, None, "", grants)
        self._entry = Entry(self._policy, self.frame, self.setting.latency)
        self._rules = self.setting.discipline.rules(self.frame)
        self._room = Room(self._rules)
        self._lends = any(partition.lend for partition in self._rules.partitions.values())
        self._standing = Standing()
        for work in self._works.values():
            self._entry.check(work)
            self._room.queue(work, 1)
        for run in self._runs.live.values():
            self._entry.check(run.work)
            self._room.lease(run.lease, 1)

    # -- what is decided -------------------------------------------------------------------------

    def _decide(self, now: Seconds, new: Sequence[int], *, freed: bool, woken: bool) -> None:
        """Let what can start begin, by a whole plan if one is due, else by a pass that only fills."""
        discipline = self.setting.discipline
        whole = discipline.plan is not None and now >= self._plan_at and bool(self._works)
        again = passes = whole or woken or self._may_change()
        while again:
            if not (self._works or woken):
                break
            snapshot = self._snapshot(now, everything=freed or whole or woken or discipline.in_turn)
            if not (snapshot.waiting or woken):
                break
            if whole and discipline.plan:
                found = discipline.plan(snapshot, now)
            else:
                found = discipline.fill(snapshot, now, self._standing)
            kept = any(start.work in self._promises for start in found.starts)
            due = self._carry_out(found, now)
            again = due or (kept and not whole and self._may_change())
            freed = freed or kept or due
        if whole or (passes and discipline.plan is None):
            self._unplanned.clear()
        if whole:
            self._plan_at = now + self.setting.plan_every
            self._tell(found, new, now)
            self._grow_older(found, now)
        if passes:
            self._wake = self._next_moment(now)

    def _next_moment(self, now: Seconds) -> Seconds | None:
        """Return when something changes by itself; never where nothing waits and nothing is lent."""
        if not (self._works or self._lends):
            return None
        left = self._snapshot(now, everything=True, ranked=False)
        return next_moment(left, now, self._room.used)

    def _may_change(self) -> bool:
        """Say whether a pass could perhaps start something, or make others stop."""
        if self.setting.discipline.in_turn:
            return any(self._room.may_start(work) for work in self._waiting.all()[:1])
        return self._room.may_change()

    def _tell(self, found: Plan, new: Iterable[int], now: Seconds) -> None:
        """Tell those that were submitted now, and wait, when the plan expects them to start."""
        for id in new:
            if id in self._works and (expected := found.verdicts[id].expected_start) is not None:
                self.journal.estimate(now, self._works[id], expected)

    def _snapshot(self, now: Seconds, *, everything: bool, ranked: bool = True) -> Snapshot:
        """Return the pool as it is, with all that waits or, where nothing became free, what may yet start.

        Then what the last whole plan left waiting still waits, and only what came since may start, behind
        what is promised. Past usage is there only where somebody is to be ranked before somebody else.
        """
        waiting = self._waiting.all()
        if not everything:
            kept = self._unplanned | self._promises.keys() if self._unplanned else ()
            works = (self._works[id] for id in kept)
            waiting = tuple(sorted(works, key=lambda work: (work.submitted, work.id)))
        promises = tuple(self._promises.values())
        usage = self._accounts.usage(now) if ranked and len(waiting) > 1 else Usage()
        return self._rules.snapshot(waiting, self._held.all(), promises, usage)

    def _carry_out(self, found: Plan, now: Seconds) -> bool:
        """Make the decisions of a plan facts; say whether it has promised somebody this very moment."""
        for start in found.starts:
            self._begin(start, now)
        for stop in found.stops:
            self._ask(stop, now)
        return self._promise(found, now)

    def _begin(self, start: Start, now: Seconds) -> None:
        work, placement = self._leave_queue(start.work), start.placement
        lease = Lease(
            id=work.id,
            work=work.id,
            kind=work.kind,
            user=work.user,
            group=work.group,
            priority=work.priority,
            request=work.request,
            placement=placement,
            start=now,
            end=now + work.limit,
            whole=work.request.gpus > 0,
            resumable=work.resumable,
            grace=work.grace,
        )
        self._held.follow(work.id, lease)
        self._room.lease(lease, 1)
        self._account(lease, now, 1)
        lent = work.kind not in self.frame.partitions[placement.partition].kinds
        self.journal.begin(now, work, start, lent=lent)
        if (done := self._runs.done(work.id)) is not None:
            self.journal.resume(now, work, done)
        heappush(self._due, (self._runs.begin(work, lease).until, work.id))

    def _ask(self, stop: Stop, now: Seconds) -> None:
        run = self._runs.ask(stop.work, now)
        if run is not None:
            self._held.follow(stop.lease, run.lease)
            self.journal.stop_asked(now, run.lease, stop)
            heappush(self._due, (run.until, stop.work))

    def _promise(self, found: Plan, now: Seconds) -> bool:
        causes = {move.work: move.cause for move in found.moves}
        kept = {promise.work: promise for promise in found.promises}
        due = False
        for id, promise in kept.items():
            known = self._promises.get(id)
            if known is None or known.start != promise.start:
                self.journal.promise(now, self._works[id], promise.start, causes.get(id))
                due = due or promise.start <= now
        self._promises = kept
        return due

    # -- what follows ----------------------------------------------------------------------------

    def _free(self, id: int, now: Seconds) -> None:
        """Take a lease back, note how its work ended, and queue it again if it was stopped for others."""
        run, again = self._runs.over(id, now)
        self._held.follow(id, None)
        self._room.lease(run.lease, -1)
        self._account(run.lease, now, -1)
        eligible = None if again is None else self._eligible(again, again.not_before)
        self.journal.end(now, run.lease, run.outcome, eligible)
        if again is not None:
            self._join_queue(again)

    def _join_queue(self, work: Work) -> None:
        self._works[work.id] = work
        self._waiting.follow(work.id, work)
        self._room.queue(work, 1)
        self._unplanned.add(work.id)

    def _leave_queue(self, id: int) -> Work:
        self._waiting.follow(id, None)
        self._unplanned.discard(id)
        self._ageing.pop(id, None)
        work = self._works.pop(id)
        self._room.queue(work, -1)
        return work

    def _account(self, lease: Lease, now: Seconds, sign: int) -> None:
        key = lease.group, lease.user
        charge = self._rules.priorities[lease.priority].charge_milli
        self._stored[key] = self._accounts.settled(key, now)
        self._accounts.hold(key, sign * lease.placement.gpu_milli * charge * 1000)

    def _grow_older(self, found: Plan, now: Seconds) -> None:
        """Let ages grow or rest as the plan's reasons say, an hour at a time."""
        for id, verdict in found.verdicts.items():
            since = self._ageing.get(id)
            ageing = verdict.reason in AGEING
            if since is None:
                if ageing:
                    self._ageing[id] = now
            elif not ageing or now - since >= AGE_GRAIN_S:
                work = self._works[id] = replace(self._works[id], age=self._works[id].age + now - since)
                self._waiting.follow(id, work)
                del self._ageing[id]
                if ageing:
                    self._ageing[id] = now
