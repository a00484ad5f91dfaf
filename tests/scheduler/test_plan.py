"""Whole plans: what starts, what waits, under which reason, and for when it is expected."""

from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.model import Gpu, Group, Node, Quota, Reason, Settings, UserLimits
from jupyter_gpupool.scheduler.plan import fill, plan
from tests.scheduler.told import expected, promised, reasons, started


@pytest.mark.parametrize(("limit", "starts"), [(50, [3]), (60, [3]), (61, [])])
@pytest.mark.parametrize("decide", [plan, fill])
def test_backfill_the_worked_value(pool, decide, limit, starts):
    cards = pool.gpus(4)
    running = pool.lease(pool.job(1, 2), cards[:2], 60)
    snapshot = pool.snapshot([pool.job(2, 4), pool.job(3, 2, limit)], [running], gpus=cards)
    decided = decide(snapshot, 0)
    assert started(decided) == starts
    assert promised(decided)[2] == 60


def test_everything_starts_on_a_free_pool(pool):
    decided = plan(pool.snapshot([pool.job(1, 2), pool.job(2), pool.session(3)]), 0)
    assert started(decided) == [3, 1, 2]
    assert decided.verdicts == {}


def test_an_empty_pool_plans_nothing(pool):
    assert plan(pool.snapshot([]), 0) == fill(pool.snapshot([]), 0)


def test_estimates_follow_one_another(pool):
    cards = pool.gpus(1)
    running = pool.lease(pool.job(1), cards, 50)
    waiting = [pool.job(n, limit=100) for n in (2, 3, 4)]
    snapshot = pool.snapshot(waiting, [running], gpus=cards, settings=Settings(promises=1))
    decided = plan(snapshot, 0)
    assert promised(decided) == {2: 50}
    assert expected(decided) == {2: 50, 3: 150, 4: 250}
    assert [decided.verdicts[n].promised for n in (2, 3, 4)] == [True, False, False]
    assert [decided.verdicts[n].position for n in (2, 3, 4)] == [1, 2, 3]


class TestLimits:
    """Quota, user limits, priorities and slots are resources on the timeline."""

    def test_group_quota(self, pool):
        cards = pool.gpus(4)
        groups = [pool.group("a", 2, limit=2), pool.group("b", 2)]
        waiting = [pool.job(1, 2), pool.job(2), pool.job(3, group="b")]
        decided = plan(pool.snapshot(waiting, gpus=cards, groups=groups), 0)
        assert started(decided) == [1, 3]
        assert reasons(decided) == {2: Reason.GROUP_QUOTA}
        assert expected(decided) == {2: 100}

    def test_quota_of_cpus_and_of_a_type(self, pool):
        cards = pool.gpus(2, model="H200")
        owed = {"gpu_milli": 2000, "cpus_milli": 3000, "gpu_milli.h200": 1000}
        group = Group("a", "pool", Quota(owed, limit=owed))
        decided = plan(
            pool.snapshot([pool.job(1), pool.job(2), pool.job(3, 0)], gpus=cards, groups=[group]), 0
        )
        assert started(decided) == [1, 3]
        assert decided.verdicts[2].facts["what"] == "gpu_milli.h200"
        decided = plan(
            pool.snapshot([pool.job(1, cpus_milli=3000), pool.job(2, 0)], gpus=cards, groups=[group]), 0
        )
        assert started(decided) == [1]
        assert decided.verdicts[2].facts["what"] == "cpus_milli"

    def test_slices_are_charged_in_milli(self, pool):
        group = pool.group("a", 0.25, limit=0.25)
        waiting = [pool.session(n, gpu_mib=4096) for n in (1, 2, 3)]
        decided = plan(pool.snapshot(waiting, groups=[group]), 0)
        assert started(decided) == [1, 2]
        assert reasons(decided) == {3: Reason.GROUP_QUOTA}

    def test_user_limits(self, pool):
        group = pool.group("a", user=UserLimits(gpu_milli=2000, sessions=1, running_jobs=2))
        waiting = [
            pool.session(1, 0),
            pool.session(2, 0),
            pool.job(3, 2),
            pool.job(4),
            pool.job(5, 0),
            pool.job(6, 0),
            pool.job(7, user="bob"),
        ]
        decided = plan(pool.snapshot(waiting, groups=[group]), 0)
        assert started(decided) == [1, 3, 7, 5]
        assert reasons(decided) == dict.fromkeys((2, 4, 6), Reason.USER_LIMIT)
        assert [decided.verdicts[n].facts["what"] for n in (2, 4, 6)] == ["sessions", "gpus", "running_jobs"]
        assert promised(decided) == {}
        assert expected(decided) == {2: 100, 4: 100, 6: 100}

    def test_what_is_said_of_one_user_goes_before_the_group(self, pool):
        group = pool.group("a", user=UserLimits(gpu_milli=1000))
        users = {"bob": UserLimits(gpu_milli=3000)}
        waiting = [pool.job(1, 2), pool.job(2, 2, user="bob")]
        decided = plan(pool.snapshot(waiting, groups=[group], users=users), 0)
        assert started(decided) == [2]
        assert reasons(decided) == {1: Reason.EXCEEDS_LIMIT}

    def test_running_jobs_of_a_priority_are_counted_per_user(self, pool):
        waiting = [
            pool.job(1, priority="high"),
            pool.job(2, priority="high"),
            pool.job(3, priority="high", user="bob"),
        ]
        decided = plan(pool.snapshot(waiting), 0)
        assert started(decided) == [1, 3]
        assert decided.verdicts[2].facts["what"] == "priority"

    def test_slots_of_the_host(self, pool):
        settings = Settings(slots=2, host="here")
        waiting = [pool.job(n, gpu_mib=1024) for n in (1, 2, 3)] + [pool.session(4, gpu_mib=1024)]
        decided = plan(pool.snapshot(waiting, settings=settings), 0)
        assert started(decided) == [4, 1, 2]
        assert reasons(decided) == {3: Reason.RESOURCES}
        assert decided.verdicts[3].facts["owner"] == "here"
        assert expected(decided) == {3: 100}

    def test_quota_lowered_below_use_stops_nothing_and_starts_nothing(self, pool):
        cards = pool.gpus(4)
        running = pool.lease(pool.job(1, 3), cards[:3], 60)
        decided = plan(
            pool.snapshot([pool.job(2)], [running], gpus=cards, groups=[pool.group("a", 2, limit=2)]), 0
        )
        assert started(decided) == []
        assert expected(decided) == {2: 60}

    def test_a_user_of_no_group_gets_cpus_only(self, pool):
        decided = plan(pool.snapshot([pool.job(1, 0, group="?"), pool.job(2, group="?")]), 0)
        assert started(decided) == [1]
        assert reasons(decided) == {2: Reason.EXCEEDS_LIMIT}

    def test_leases_of_unknown_cards_still_count(self, pool):
        cards = pool.gpus(2)
        lost = Gpu("lost", "node1", 9, "SIM", pool.card, "training")
        running = pool.lease(pool.job(1, 1), [lost], 60)
        decided = plan(
            pool.snapshot([pool.job(2)], [running], gpus=cards, groups=[pool.group("a", 1, limit=1)]), 0
        )
        assert expected(decided) == {2: 60}


WINDOWS = {"night": ((100, 200), (300, 400))}


class TestWindows:
    """A job with a window starts only inside it."""

    def decide(self, pool, now, **more):
        snapshot = pool.snapshot([pool.job(1, window="night", limit=500, **more)], windows=WINDOWS)
        return plan(snapshot, now)

    def test_outside(self, pool):
        decided = self.decide(pool, 50)
        assert reasons(decided) == {1: Reason.OUTSIDE_WINDOW}
        assert promised(decided) == {1: 100}

    @pytest.mark.parametrize(("now", "starts"), [(99, []), (100, [1]), (199, [1]), (200, []), (300, [1])])
    def test_edges(self, pool, now, starts):
        assert started(self.decide(pool, now)) == starts
        assert started(fill(pool.snapshot([pool.job(1, window="night")], windows=WINDOWS), now)) == starts

    def test_a_window_that_closes_before_there_is_room(self, pool):
        cards = pool.gpus(1)
        running = pool.lease(pool.job(9), cards, 250)
        snapshot = pool.snapshot([pool.job(1, window="night")], [running], gpus=cards, windows=WINDOWS)
        for settings in (Settings(), Settings(promises=0)):
            assert expected(plan(replace(snapshot, settings=settings), 120)) == {1: 300}

    def test_a_window_that_never_opens_again(self, pool):
        decided = self.decide(pool, 400)
        assert expected(decided) == {1: None}
        assert reasons(decided) == {1: Reason.OUTSIDE_WINDOW}


def test_back_off(pool):
    decided = plan(pool.snapshot([pool.job(1, not_before=70)]), 10)
    assert reasons(decided) == {1: Reason.BACK_OFF}
    assert expected(decided) == {1: 70}
    assert started(plan(pool.snapshot([pool.job(1, not_before=70)]), 70)) == [1]


def test_priority_and_resources(pool):
    cards = pool.gpus(2)
    running = pool.lease(pool.job(9, 2), cards, 60)
    decided = plan(pool.snapshot([pool.job(1, 2), pool.job(2)], [running], gpus=cards), 0)
    assert reasons(decided) == {1: Reason.RESOURCES, 2: Reason.PRIORITY}
    assert decided.verdicts[2].facts["first"] == 1


def test_two_partitions_do_not_wait_for_each_other(pool):
    cards = pool.gpus(1) + pool.gpus(1, partition="fast", first=2)
    running = [pool.lease(pool.job(8), cards[:1], 60), pool.lease(pool.job(9), cards[1:], 70)]
    waiting = [pool.job(1, partition="training"), pool.job(2, partition="fast"), pool.job(3)]
    decided = plan(pool.snapshot(waiting, running, gpus=cards), 0)
    assert reasons(decided) == {1: Reason.RESOURCES, 2: Reason.RESOURCES, 3: Reason.PRIORITY}


def test_drained_cards(pool):
    cards = tuple(replace(gpu, available=False, unavailable_because="maintenance") for gpu in pool.gpus(2))
    decided = plan(pool.snapshot([pool.job(1)], gpus=cards), 0)
    assert reasons(decided) == {1: Reason.UNAVAILABLE}
    assert expected(decided) == {1: None}
    down = [Node("node1", 64_000, 512 * 1024, available=False, unavailable_because="power")]
    decided = plan(pool.snapshot([pool.job(1), pool.job(2, 0)], gpus=pool.gpus(2), nodes=down), 0)
    assert reasons(decided) == {1: Reason.UNAVAILABLE, 2: Reason.UNAVAILABLE}


def test_held_invalid_and_impossible_work(pool):
    waiting = [
        pool.job(1, held="by ann"),
        pool.job(2, invalid="its package is gone"),
        pool.job(3, gpu_types=("b200",)),
        pool.job(4, 101),
        pool.job(5),
    ]
    decided = plan(pool.snapshot(waiting, gpus=pool.gpus(8, nodes=16)), 0)
    assert started(decided) == [5]
    assert reasons(decided) == {
        1: Reason.HELD,
        2: Reason.INVALID,
        3: Reason.NO_SUCH_GPU,
        4: Reason.NO_SUCH_GPU,
    }
    assert set(expected(decided).values()) == {None}
    assert all(verdict.position is None for verdict in decided.verdicts.values())


def test_no_such_card_is_said_before_what_exceeds_a_limit(pool):
    """The first that holds: there is no such card, the class is for others, the time is too long."""
    group = pool.group("b", user=UserLimits(job_time=50))
    waiting = [pool.job(1, group="b", gpu_types=("none",), priority="urgent"), pool.job(2, group="b")]
    found = reasons(plan(pool.snapshot(waiting, groups=[group]), 0))
    assert found == {1: Reason.NO_SUCH_GPU, 2: Reason.EXCEEDS_LIMIT}


def test_fill_leaves_no_room_to_worse_work_while_promises_are_free(pool):
    cards = pool.gpus(4)
    running = pool.lease(pool.job(1, 2), cards[:2], 60)
    snapshot = pool.snapshot([pool.job(2, 4, submitted=1), pool.job(3, 1, 500)], [running], gpus=cards)
    assert started(fill(snapshot, 0)) == []


def test_a_type_without_quota_leaves_the_other_types(pool):
    cards = pool.gpus(2, model="H200") + pool.gpus(1, model="A100", first=2)
    owed = {"gpu_milli": 4000, "gpu_milli.a100": 0, "gpu_milli.h200": 1000}
    group = Group("a", "pool", Quota(owed, limit=owed))
    running = pool.lease(pool.job(9), cards[:1], 60)
    snapshot = pool.snapshot([pool.job(1), pool.job(2)], [running], gpus=cards, groups=[group])
    for settings in (Settings(), Settings(promises=0)):
        assert expected(plan(replace(snapshot, settings=settings), 0)) == {1: 60, 2: 160}


def test_estimates_look_everywhere_once_they_are_at_the_head(pool):
    gib = 1024
    cards = pool.gpus(1, nodes=2)
    running = [
        pool.lease(pool.job(7, gpu_mib=20 * gib), cards[:1], 30),
        pool.lease(pool.job(8, gpu_mib=12 * gib), cards[:1], 900),
        pool.lease(pool.job(9), cards[1:], 50),
    ]
    waiting = [pool.job(1, gpu_mib=31 * gib), pool.job(2, gpu_mib=17 * gib)]
    decided = plan(pool.snapshot(waiting, running, gpus=cards, settings=Settings(promises=0)), 0)
    assert expected(decided) == {1: 50, 2: 50}
