"""Who comes first, played over days: groups first, then users, and a burst wins nothing."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpupool.ledger.usage import decayed
from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import Usage
from jupyter_gpupool.scheduler.plan import plan
from jupyter_gpupool.scheduler.ranking import Ranking

HOUR = 3600
NANO = 1_000_000_000
COLLEAGUES = tuple(f"user{number}" for number in range(1, 10))


def order(snapshot):
    board = Board(snapshot, 0)
    return list(Ranking(board, snapshot.waiting, lambda work: True))


def play(pool, snapshot, until, step=HOUR):
    """Let jobs run to their limits; return when each began."""
    begun = {}
    for now in range(0, until, step):
        running = tuple(lease for lease in snapshot.leases if lease.end > now)
        snapshot = replace(snapshot, leases=running)
        decided = plan(snapshot, now)
        begun.update((start.work, now) for start in decided.starts)
        snapshot = pool.after(snapshot, decided, now)
    return begun


def test_a_hundred_submissions_of_one_do_not_starve_nine_colleagues(pool):
    """Ann submits a hundred at 18:00, nine colleagues a job each a bit later: all ten have a card at once."""
    cards = pool.gpus(10)
    burst = [pool.job(n, limit=HOUR, user="ann", submitted=n) for n in range(1, 101)]
    others = [
        pool.job(200 + n, limit=HOUR, user=user, submitted=150 + n) for n, user in enumerate(COLLEAGUES)
    ]
    snapshot = pool.snapshot([*burst, *others], gpus=cards, groups=[pool.group("a", 10)])
    begun = play(pool, snapshot, 2 * HOUR)
    assert sorted(work for work, when in begun.items() if when == 0) == [1, *(work.id for work in others)]


def test_a_burst_of_one_group_leaves_the_other_its_half(pool):
    """Ten users of one group have no more of the pool than the one of the other."""
    cards = pool.gpus(4)
    many = [pool.job(n, limit=HOUR, user=f"user{n % 10}", submitted=n) for n in range(1, 41)]
    alone = [pool.job(100 + n, limit=HOUR, user="zoe", group="b", submitted=90 + n) for n in range(8)]
    groups = [pool.group("a", 2), pool.group("b", 2)]
    begun = play(pool, pool.snapshot([*many, *alone], gpus=cards, groups=groups), 4 * HOUR)
    for now in range(0, 4 * HOUR, HOUR):
        started = [work for work, when in begun.items() if when == now]
        assert sum(work >= 100 for work in started) == sum(work < 100 for work in started) == 2


def test_who_used_much_last_week_comes_after_who_did_not(pool):
    """A day later, a half-life being seven days, 0.905724 of what was used still counts."""
    after_a_day = decayed(10 * NANO, 0, 24 * HOUR)
    assert round(after_a_day / (10 * NANO), 6) == 0.905724
    usage = Usage(by_group={"a": after_a_day, "b": NANO}, by_user={("a", "ann"): after_a_day})
    waiting = [
        pool.job(1, user="ann", submitted=1),
        pool.job(2, user="bob", submitted=2),
        pool.job(3, group="b", user="cat", submitted=3),
    ]
    groups = [pool.group("a", 4), pool.group("b", 4)]
    snapshot = pool.snapshot(waiting, groups=groups, usage=usage)
    assert [work.id for work in order(snapshot)] == [3, 2, 1]


def test_a_heavy_user_in_an_idle_group_beats_a_light_one_in_a_busy_group(pool):
    usage = Usage(
        by_group={"a": 2 * NANO, "b": 6 * NANO},
        by_user={("a", "ann"): 2 * NANO, ("b", "bob"): 0},
    )
    groups = [pool.group("a", 4), pool.group("b", 4)]
    waiting = [pool.job(1, user="bob", group="b"), pool.job(2, user="ann", submitted=9)]
    assert [work.id for work in order(pool.snapshot(waiting, groups=groups, usage=usage))] == [2, 1]


def test_weight_counts_where_siblings_are_compared(pool):
    groups = [
        pool.group("left", 0, weight=3),
        pool.group("a", 4, parent="left"),
        pool.group("b", 4),
    ]
    usage = Usage(by_group={"a": 2 * NANO, "b": 1 * NANO})
    waiting = [pool.job(1, group="b"), pool.job(2, group="a", submitted=9)]
    assert [work.id for work in order(pool.snapshot(waiting, groups=groups, usage=usage))] == [2, 1]


def test_what_only_a_group_below_names_is_no_share_of_those_above(pool):
    """Of its CPUs a uses eight times what it owns; top names none, and has used none of its cards."""
    groups = [
        pool.group("top", 4),
        pool.group("a", 0, parent="top", quota={"cpus_milli": 1000}),
        pool.group("b", 4),
    ]
    cards = pool.gpus(4)
    running = [
        pool.lease(pool.job(8, 0, group="a", cpus_milli=8000), [], 100),
        pool.lease(pool.job(9, group="b"), cards[:1], 100),
    ]
    waiting = [pool.job(1, group="b"), pool.job(2, group="top", submitted=9)]
    snapshot = pool.snapshot(waiting, running, gpus=cards, groups=groups)
    assert [work.id for work in order(snapshot)] == [2, 1]


def test_weight_nothing_comes_last_once_it_used_something(pool):
    groups = [pool.group("a", 4, weight=0), pool.group("b", 4)]
    waiting = [pool.job(1), pool.job(2, submitted=2), pool.job(3, group="b", submitted=9)]
    usage = Usage(by_group={"b": 50 * NANO})
    assert [work.id for work in order(pool.snapshot(waiting, groups=groups, usage=usage))] == [1, 3, 2]


class TestInsideQuota:
    def test_a_group_with_others_below_it_is_inside_by_what_all_of_them_use(self, pool):
        """The parent owns 1 and its child's 2: with the child's 2 in use, its second job would borrow."""
        cards = pool.gpus(8)
        groups = [pool.group("top", 1), pool.group("a", 2, parent="top"), pool.group("b", 5)]
        running = [pool.lease(pool.job(50 + n, user="bob"), [cards[n]], 9 * HOUR) for n in range(2)]
        waiting = [
            pool.job(1, group="top"),
            pool.job(2, group="top"),
            pool.job(3, group="b", submitted=9),
        ]
        usage = Usage(by_group={"b": 90 * NANO})
        snapshot = pool.snapshot(waiting, running, gpus=cards, groups=groups, usage=usage)
        assert [work.id for work in order(snapshot)] == [1, 3, 2]

    def test_what_is_ranked_below_a_group_counts_for_it_at_once(self, pool):
        groups = [pool.group("top", 0), pool.group("a", 1, parent="top"), pool.group("b", 5)]
        waiting = [
            pool.job(1, group="top", priority="low"),
            pool.job(2, group="a"),
            pool.job(3, group="b", priority="low", submitted=9),
        ]
        usage = Usage(by_group={"b": 90 * NANO})
        snapshot = pool.snapshot(waiting, groups=groups, usage=usage)
        assert [work.id for work in order(snapshot)] == [2, 3, 1]

    def test_what_a_child_keeps_is_not_its_parents(self, pool):
        groups = [pool.group("top", 0), pool.group("a", 1, parent="top", lend=0), pool.group("b", 5)]
        waiting = [pool.job(1, group="top"), pool.job(2, group="b", submitted=9)]
        assert [work.id for work in order(pool.snapshot(waiting, groups=groups))] == [2, 1]
