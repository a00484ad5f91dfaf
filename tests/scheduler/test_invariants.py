"""Invariants 1 to 8 over random histories of one pool: a state machine whose every decision is checked."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from jupyter_gpupool.scheduler.model import Request, Reservation, Settings
from jupyter_gpupool.scheduler.moments import next_moment
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.reasons import explain
from jupyter_gpupool.service.standing import over_quota
from tests.scheduler.outside import Seen
from tests.scheduler.world import GIB, GPUS, POLICIES, Task, World, partitions

SIZES = [
    *(Request(gpus=cards, cpus_milli=cpus) for cards in (1, 1, 2, 2, 4) for cpus in (0, 1000, 5000)),
    *(Request(gpu_mib=mib) for mib in (256, 4 * GIB, 5 * GIB + 1, 20 * GIB, 32 * GIB)),
    *(Request(share=share, memory_mib=mib) for share in ((1, 8), (1, 3), (1, 2)) for mib in (0, 60 * GIB)),
    *(Request(gpus=1, gpu_types=types) for types in (("h100",), ("a100",), ("a100", "h100"))),
    Request(gpus=1, partition="training"),
    Request(cpus_milli=9000),
]
QUICKLY = [False, True]
NUMBERS = list(range(20))
SOME = {
    "request": SIZES,
    "limit": [60, 200, 300, 500, 601, 1200, 3000],
    "user": ["ann", "bob"],
    "group": ["a", "a", "a1", "a2", "b", "b", "c", "c"],
}
TASK = {"left": [20, 150, 400, 2000, 9999], "late": [0, 0, 0, 0, 40]}
CARDS = [gpu.uuid for gpu in GPUS]
STEPS = [  # weight, what, choices for each argument
    (
        6,
        "submit_jobs",
        SOME
        | TASK
        | {
            "priority": ["low", "normal", "normal", "normal", "high", "urgent"],
            "resumable": [True, True, False],
            "grace": [0, 10, 60],
            "window": [None, None, None, None, "night"],
            "array": [None, None, None, None, 1],
            "many": [1, 1, 2, 4],
            "quickly": QUICKLY,
        },
    ),
    (2, "submit_session", SOME | TASK | {"quickly": QUICKLY}),
    (1, "submit_behind_another", SOME | TASK | {"number": NUMBERS}),
    (2, "end_early", {"number": NUMBERS, "quickly": QUICKLY}),
    (1, "cancel_or_hold_or_release", {"number": NUMBERS}),
    (1, "write_a_checkpoint", {"number": NUMBERS}),
    (1, "extend", {"number": NUMBERS, "more": [50, 500]}),
    (
        1,
        "lose_or_drain",
        {"away": [(), (), ("node1",), ("node2",), ("node4", CARDS[3]), (CARDS[0],), (CARDS[2], CARDS[4])]},
    ),
    (1, "change_policy", {"policy": list(POLICIES), "quickly": QUICKLY}),
    (1, "reserve", {"cards": list(combinations(CARDS, 2)), "start": [0, 200], "group": [None, "b"]}),
    (6, "wait", {"seconds": [1, 15, 120, 121, 400, 1300], "quickly": QUICKLY}),
    (1, "nobody_looks_for_a_while", {"seconds": [30, 300, 1000]}),
    (1, "the_clock_steps_back", {"seconds": [1, 40]}),
    (1, "the_fast_pass_begins_what_the_whole_plan_does", {}),
    (1, "reasons_have_words", {}),
    (
        2,
        "an_ordinary_submission_moves_no_promise",
        SOME | {"priority": ["low", "normal"], "resumable": QUICKLY},
    ),
    (1, "without_new_input_stops_cease", {}),
]
POOLS = {
    "by_day": QUICKLY,
    "headroom": [0, 3],
    "settle": [0, 100],
    "sessions": QUICKLY,
    "promises": [1, 3, 100],
    "slots": [None, None, 4],
    "budget": [None, None, 5_000_000],
}


class History:
    """One pool, and all that may happen to it."""

    def __init__(self, by_day, headroom, settle, sessions, promises, slots, budget):
        numbers = Settings(
            promises=promises,
            promises_per_group=3,
            age_step=2000,
            min_run_time=120,
            borrow_max_time=600,
            slots=slots,
            host="here",
        )
        self.world = World(partitions(by_day, headroom, settle, sessions), numbers, budget)

    # -- people

    def submit_jobs(self, request, limit, left, late, quickly, many, array, **more):
        for _ in range(many):
            more_of = {"array": array, "array_limit": 2} if array else {}
            self.world.submit("job", request, limit, Task(left, late), **more, **more_of)
        self.world.decide(quickly=quickly)

    def submit_session(self, request, limit, left, late, quickly, **more):
        self.world.submit("session", request, limit, Task(left, late), priority="normal", **more)
        self.world.decide(quickly=quickly)

    def submit_behind_another(self, request, limit, left, late, number, **more):
        others = [*self.world.works, *self.world.leases]
        after = (others[number % len(others)],) if others else ()
        self.world.submit("job", request, limit, Task(left, late), priority="normal", after=after, **more)
        self.world.decide()

    def end_early(self, number, quickly):
        lease = self.world.any_lease(number)
        if lease:
            self.world.tasks[lease.work].left = 0
            self.world.end(lease)
            self.world.decide(quickly=quickly)

    def cancel_or_hold_or_release(self, number):
        works = list(self.world.works.values())
        if works:
            work = works[number // 3 % len(works)]
            if number % 3 == 0:
                self.world.gone(work.id)
            else:
                self.world.works[work.id] = replace(work, held="" if work.held else "by ann")
            self.world.decide()

    def write_a_checkpoint(self, number):
        lease = self.world.any_lease(number, ["job"])
        if lease:
            self.world.leases[lease.id] = replace(lease, resumable=True)
            self.world.known[lease.work] = replace(self.world.known[lease.work], resumable=True)
            self.world.decide()

    def extend(self, number, more):
        lease = self.world.any_lease(number)
        if lease:
            self.world.leases[lease.id] = replace(lease, end=lease.end + more)
            self.world.news.add("extension")
            self.world.decide()

    # -- machines and administrators

    def lose_or_drain(self, away):
        self.world.away = frozenset(away)
        self.world.news.add("nodes")
        self.world.decide()

    def change_policy(self, policy, quickly):
        self.world.policy = policy
        self.world.news.add("policy")
        self.nobody_waits_nobody_leaves()
        self.world.decide(quickly=quickly)

    def reserve(self, cards, start, group):
        world = self.world
        world.number += 1
        begins = world.now + start
        groups = frozenset({group} if group else ())
        world.reservations = (
            *world.reservations[-1:],
            Reservation(world.number, frozenset(cards), begins, begins + 500, groups),
        )
        world.news.add("policy")
        world.decide()

    # -- time

    def wait(self, seconds, quickly):
        self.world.wait(seconds, quickly=quickly)

    def nobody_looks_for_a_while(self, seconds):
        self.world.pass_to(self.world.now + seconds)
        self.world.news.add("sloppy")
        self.world.decide()

    def the_clock_steps_back(self, seconds):
        self.world.now = max(0, self.world.now - seconds)
        self.world.news.add("clock")
        self.world.decide()

    # -- what else must hold

    def the_fast_pass_begins_what_the_whole_plan_does(self):
        snapshot, now = self.world.snapshot(), self.world.now
        whole, quick = plan(snapshot, now), fill(snapshot, now)
        assert whole == plan(snapshot, now)
        assert quick.starts == whole.starts[: len(quick.starts)]

    def reasons_have_words(self):
        """7: every reason has a sentence with its numbers, and one that says what would clear it."""
        snapshot = self.world.snapshot()
        for verdict in plan(snapshot, self.world.now).verdicts.values():
            told = explain(verdict, snapshot)
            assert told.message.endswith("."), told
            assert told.clears.endswith("."), told

    def an_ordinary_submission_moves_no_promise(self, request, limit, **more):
        """6: one that neither is inside quota where a promise borrows nor pays more moves none."""
        world = self.world.copy()
        world.decide()
        snapshot = world.snapshot()
        works = {work.id: work for work in snapshot.waiting}
        before = Seen(snapshot, plan(snapshot, world.now), world.now)
        work = world.submit("job", request, limit, Task(9999), **more)
        seen = Seen(world.snapshot(), plan(world.snapshot(), world.now), world.now)
        held = [*snapshot.leases, *seen.begun]
        inside = any(seen.is_inside(one, snapshot.leases) for one in seen.could_be(work))
        borrows = {
            one.work
            for one in snapshot.promises
            if not all(seen.is_inside(sort, held) for sort in seen.could_be(works[one.work]))
        }
        moved = {move.work for move in seen.plan.moves} - {move.work for move in before.plan.moves}
        assert moved <= (borrows if inside else set()), (work, seen.plan.moves)

    def without_new_input_stops_cease(self):
        """4: when nobody does anything and no window opens, stops cease: A→B→A needs new input."""
        world = self.world.copy()
        world.windows = tuple(window for window in world.windows if window[1] <= world.now)
        world.news.update(("policy", "extension"))
        for table in (world.works, world.leases):
            for id_, one in table.items():
                endless = one.resumable and one.kind == "job"
                world.tasks[id_] = Task(10**9, stops=world.tasks[id_].stops)
                if endless and table is world.works:
                    world.works[id_] = replace(one, limit=10**7)
                elif endless:
                    world.leases[id_] = replace(one, end=10**8)
                    world.known[id_] = replace(world.known[id_], limit=10**7)
        half, until = world.now + 50_000, world.now + 100_000
        for turn in range(1000):
            known = world.stopped
            world.decide(quickly=turn % 2 == 1)
            assert world.now < half or world.stopped == known, "they stop each other in turn"
            moment = next_event(world)
            if moment is None or moment > until:
                return
            world.pass_to(moment)
        raise AssertionError("they never rest")

    def nobody_waits_nobody_leaves(self):
        """8: after any change of policy nobody is stopped for its sake; who is above quota is told."""
        world = self.world
        snapshot = replace(world.snapshot(), waiting=(), promises=())
        for found in (plan(snapshot, world.now), fill(snapshot, world.now)):
            assert {stop.cause for stop in found.stops} <= {"hand_back"}, found.stops
        seen = Seen(snapshot, found, world.now)
        above = {
            name
            for name in snapshot.groups
            for resource, tree in seen.trees.items()
            if tree.excess(name, seen.own(snapshot.leases, resource)) > 0
        }
        assert over_quota(snapshot, world.now) == above


def next_event(world):
    ends = [world.over_at(lease) for lease in world.leases.values()]
    moment = next_moment(world.snapshot(), world.now)
    return min((time for time in [moment, *ends] if time is not None and time > world.now), default=None)


def choose(choices):
    return st.fixed_dictionaries({name: st.sampled_from(values) for name, values in choices.items()})


class Machine(RuleBasedStateMachine):
    """Lets things happen in any order."""

    @initialize(pool=choose(POOLS))
    def begin(self, pool):
        self.history = History(**pool)

    @rule(
        step=st.one_of(
            [st.tuples(st.just(what), choose(how)) for many, what, how in STEPS for _ in range(many)]
        )
    )
    def happens(self, step):
        what, how = step
        getattr(self.history, what)(**how)


def test_the_invariants_hold_whatever_happens():
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
