"""Any operations in any order, a crash between any two: memory and disk agree, the invariants hold."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from jupyter_gpupool.ledger import IllegalTransition, JobState, Ledger, Overbooked
from jupyter_gpupool.ledger.stops import Mark, StopOrder
from jupyter_gpupool.ledger.usage import HALF_LIFE_S
from jupyter_gpupool.scheduler.model import Promise, PromiseMove, Reason, Request, Stop
from tests.ledger.conftest import start_job

OWNERS = st.sampled_from(["ada", "bob"])
GROUPS = st.sampled_from(["vision", "speech"])
UUIDS = st.sampled_from(["SIM-0", "SIM-1"])
SIZES = st.sampled_from([0, 4096, 16384, 20000])  # 0: a whole card
MODES = st.sampled_from(["timeslice", "mps"])
OUTCOMES = st.sampled_from([state for state in JobState if state.ended])
NUMBERS = st.integers(0, 1000)
MISTAKES = (IllegalTransition, Overbooked)


class Machine(RuleBasedStateMachine):
    """Does to a ledger what a service might, right and wrong."""

    def __init__(self, sample):
        super().__init__()
        self.sample = sample
        self.folder = Path(tempfile.mkdtemp())
        self.generation = itertools.count()
        self.now = 0
        self.ledger = None

    def teardown(self):
        self.ledger.close()
        shutil.rmtree(self.folder)

    def copy(self):
        """Copy the files as a power cut would leave them, and return the ledger's path there."""
        source = self.path.parent
        there = self.folder / str(next(self.generation))
        shutil.copytree(source, there)
        return there / self.path.name

    def some(self, records, number):
        """Choose one of the records there are, most of the time the newest ones."""
        ids = sorted(records, reverse=True)
        return ids[min(number % 7, len(ids) - 1)] if ids else None

    def attempt(self, call):
        """Do something that may be a mistake: then it is refused and changes nothing."""
        before = self.image(self.ledger)
        try:
            call()
        except MISTAKES:
            assert self.image(self.ledger) == before

    def image(self, ledger):
        return (
            dict(ledger.jobs),
            dict(ledger.sessions),
            dict(ledger.leases),
            dict(ledger.promises),
            dict(ledger.cards),
            [ledger.stops.of(id) for id in ledger.jobs],
            ledger.waiting(),
            ledger.held(),
            ledger.usage(self.now),
            ledger.usage(self.now + HALF_LIFE_S),
        )

    @initialize()
    def begin(self):
        self.path = self.folder / "first" / "ledger.sqlite"
        self.ledger = Ledger.open(self.path, now=0, boot_id="b")
        self.ledger.set_cards(self.sample.cards())

    @rule(seconds=st.integers(0, 200_000))
    def pass_time(self, seconds):
        self.now += seconds

    @rule(owner=OWNERS, group=GROUPS, mib=SIZES, held=st.booleans(), key=st.sampled_from([None, "a", "b"]))
    def add_job(self, owner, group, mib, held, key):
        request = Request(gpu_mib=mib) if mib else Request(gpus=1)
        known = {(job.owner, job.key): job for job in self.ledger.jobs.values() if job.key}
        new = self.sample.job(owner=owner, group=group, request=request, held="x" if held else "", key=key)
        job = self.ledger.add_job(new, self.now)
        assert job == known.get((owner, key), job)

    @rule(owner=OWNERS, mib=SIZES, server=st.sampled_from([None, "ada/", "ada/second"]))
    def add_session(self, owner, mib, server):
        request = Request(gpu_mib=mib) if mib else Request(gpus=1)
        new = self.sample.session(owner=owner, request=request, server=server)
        session = self.ledger.add_session(new, self.now)
        assert server is None or self.ledger.sessions_of(server)[-1] == session

    def where(self, record, uuid):
        mib = record.request.gpu_mib or 32768
        return self.sample.place(uuid, mib=mib, milli=-(-1000 * mib // 32768))

    @rule(number=NUMBERS, uuid=UUIDS, mode=MODES, charge=st.sampled_from([500, 1000, 4000]))
    def start(self, number, uuid, mode, charge):
        waiting = self.ledger.waiting()
        if not waiting:
            return
        work = waiting[number % len(waiting)]
        grant = partial(start_job, self.ledger) if work.kind == "job" else self.ledger.session_held
        place = self.where(work, uuid)
        self.attempt(lambda: grant(work.id, place, self.now, mode=mode, charge_milli=charge))

    @rule(number=NUMBERS, attempt=st.integers(1, 3))
    def run(self, number, attempt):
        id = self.some(self.ledger.jobs, number)
        if id:
            self.attempt(lambda: self.ledger.job_running(id, attempt, self.now))

    @rule(number=NUMBERS)
    def ask_to_stop(self, number):
        id = self.some(self.ledger.jobs, number)
        if id:
            attempt = self.ledger.jobs[id].attempt
            self.attempt(lambda: self.ledger.job_stopping(id, attempt, "for job 9", self.now))

    @rule(number=NUMBERS, cause=st.sampled_from(["hand_back", "session", "reclaim", "preempt"]))
    def ask_for_others(self, number, cause):
        id = self.some(self.ledger.jobs, number)
        if id:
            stop = Stop(id, self.ledger.jobs[id].lease or 0, cause, None if cause == "hand_back" else 9)
            possible = self.ledger.stops.possible(stop)
            self.attempt(lambda: self.ledger.stops.ask([StopOrder(stop, "Stopped.")], self.now))
            assert not possible or self.ledger.jobs[id].state is JobState.STOPPING

    @rule(number=NUMBERS, mark=st.none() | st.builds(Mark, NUMBERS, NUMBERS), free=st.booleans())
    def leave_for_others(self, number, mark, free):
        id = self.some(self.ledger.jobs, number)
        if id:
            before = self.ledger.jobs[id]
            self.attempt(lambda: self.ledger.stops.left(id, before.attempt, mark, 600, self.now, free=free))
            after = self.ledger.jobs[id]
            assert after.submitted == before.submitted
            assert after is before or (after.state.waiting and after.stops == before.stops + 1)

    @rule(number=NUMBERS)
    def write_a_checkpoint(self, number):
        id = self.some(self.ledger.jobs, number)
        if id:
            self.attempt(lambda: self.ledger.stops.can_resume(id, self.now))

    @rule(number=NUMBERS, outcome=OUTCOMES, free=st.booleans())
    def end(self, number, outcome, free):
        id = self.some(self.ledger.jobs, number)
        if id:
            self.attempt(
                lambda: self.ledger.end_job(
                    id,
                    self.ledger.jobs[id].attempt,
                    outcome,
                    exit_code=1,
                    signal=None,
                    reason="r",
                    diagnosis={"a": [1]},
                    now=self.now,
                    free=free,
                )
            )

    @rule(number=NUMBERS, free=st.booleans(), wait=NUMBERS)
    def requeue(self, number, free, wait):
        id = self.some(self.ledger.jobs, number)
        if id:
            job = self.ledger.jobs[id]
            until = self.now + wait
            self.attempt(
                lambda: self.ledger.requeue_job(
                    id, job.attempt, "rebooted", self.now, not_before=until, free=free
                )
            )
            assert self.ledger.jobs[id].submitted == job.submitted

    @rule(number=NUMBERS, verb=st.sampled_from(["hold", "release", "cancel_queued"]))
    def queue_verbs(self, number, verb):
        id = self.some(self.ledger.jobs, number)
        if id:
            reason = () if verb == "release" else ("by ada",)
            self.attempt(lambda: getattr(self.ledger, verb)(id, *reason, self.now))

    @rule(number=NUMBERS, free=st.booleans())
    def end_session(self, number, free):
        id = self.some(self.ledger.sessions, number)
        if id:
            self.attempt(lambda: self.ledger.end_session(id, "given back", self.now, free=free))

    @rule(number=NUMBERS)
    def free_lease(self, number):
        id = self.some(self.ledger.leases, number)
        if id:
            self.attempt(lambda: self.ledger.free_lease(id, self.now))

    @rule(count=st.integers(0, 4), start=NUMBERS)
    def promise(self, count, start):
        works = self.ledger.waiting()[:count]
        promises = [Promise(work.id, self.now + start, self.where(work, "SIM-0"), self.now) for work in works]
        moves = [PromiseMove(promise.work, 0, promise.start, "a late end") for promise in promises]
        self.ledger.set_promises(promises, moves, self.now)

    @rule(reasons=st.lists(st.sampled_from(list(Reason)), max_size=5))
    def age(self, reasons):
        waiting = [work.id for work in self.ledger.waiting()]
        self.ledger.accrue_age(dict(zip(waiting, reasons, strict=False)), self.now)

    @rule(retention=st.integers(0, 100_000))
    def prune(self, retention):
        jobs = dict(self.ledger.jobs)
        for id in self.ledger.prune(self.now, retention):
            assert id not in jobs or jobs[id].state.ended

    @rule()
    def crash(self):
        path = self.copy()
        before = self.image(self.ledger)
        self.ledger.close()
        self.path = path
        self.ledger = Ledger.open(path, now=self.now, boot_id="b")
        assert self.image(self.ledger) == before

    @invariant()
    def memory_is_what_is_on_disk(self):
        if self.ledger is None:
            return
        path = self.copy()
        fresh = Ledger.open(path, now=self.now, boot_id="b")
        assert self.image(fresh) == self.image(self.ledger)
        fresh.close()
        shutil.rmtree(path.parent)

    @invariant()
    def no_card_is_given_away_twice(self):
        if self.ledger is None:
            return
        for uuid, card in self.ledger.cards.items():
            there = [
                (lease, share.mib)
                for lease in self.ledger.leases.values()
                if lease.live
                for share in lease.placement.gpus
                if share.uuid == uuid
            ]
            assert sum(mib for _, mib in there) <= card.memory_mib
            assert len({lease.mode for lease, _ in there}) <= 1
            assert len(there) <= 1 or not any(lease.whole for lease, _ in there)

    @invariant()
    def a_server_has_one_lease_and_the_next_comes_after_it(self):
        if self.ledger is None:
            return
        for server in ("ada/", "ada/second"):
            mine = [session for session in self.ledger.sessions.values() if session.server == server]
            there = [session.id for session in mine if session.state != "ended"]
            leases = [lease for lease in self.ledger.held() if lease.work in {one.id for one in mine}]
            assert [session.id for session in self.ledger.sessions_of(server)] == there
            assert [lease.work for lease in leases] in ([], there[:1])
            after = {work.id: work.after for work in self.ledger.waiting() if work.id in there}
            assert after == {id: tuple(one for one in there if one < id) for id in after}

    @invariant()
    def jobs_and_leases_agree(self):
        if self.ledger is None:
            return
        ledger = self.ledger
        for job in ledger.jobs.values():
            lease = ledger.leases.get(job.lease)
            attempts = [lease.attempt for lease in ledger.leases.values() if lease.work == job.id]
            assert attempts == list(range(1, job.attempt + 1))
            assert (job.ended is not None) == job.state.ended
            assert not job.state.live or lease.live
            assert (job.waiting_since is None) or job.state is JobState.QUEUED
            assert bool(job.held) == (job.state is JobState.HELD)
            stops = [lease for lease in ledger.leases.values() if lease.work == job.id and lease.cause]
            assert ledger.stops.of(job.id) == stops
            assert job.stops <= len(stops)
        assert {work.id for work in ledger.waiting()} == {
            *(job.id for job in ledger.jobs.values() if job.state.waiting),
            *(session.id for session in ledger.sessions.values() if session.state == "waiting"),
        }
        assert list(ledger.waiting()) == sorted(ledger.waiting(), key=lambda work: (work.submitted, work.id))
        assert ledger.promises.keys() <= {work.id for work in ledger.waiting() if not work.held}
        assert all(nano >= 0 for nano in ledger.usage(self.now).by_user.values())


@pytest.mark.timeout(600)
def test_any_sequence_of_operations_with_crashes(sample):
    run_state_machine_as_test(
        lambda: Machine(sample),
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
