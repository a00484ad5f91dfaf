"""The choice of who is asked, over plain values."""

from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.ends import Ends
from jupyter_gpupool.scheduler.model import Lend, Partition, Stop
from jupyter_gpupool.scheduler.stopping import (
    Excess,
    Victim,
    asked_at,
    by_harm,
    fewest,
    hand_backs,
    leaves_at,
    must_be_above,
)


@pytest.mark.parametrize(
    ("enough", "found"),
    [
        ({"c"}, ["c"]),
        ({"a", "d"}, ["a", "d"]),
        (set(), []),
        ({"a", "b", "c", "d", "e"}, ["a", "b", "c", "d", "e"]),
        ({"z"}, None),
    ],
)
def test_the_fewest_that_are_needed(enough, found):
    assert fewest("abcde", lambda chosen: enough <= set(chosen)) == found


def test_the_first_that_suffice_are_taken_and_the_later_of_those_spared():
    """Either a pair from the front or the one at the end would do: whoever comes first goes."""
    trials = []

    def suffice(chosen):
        trials.append(set(chosen))
        return {"b", "d"} <= set(chosen) or {"a", "c", "d"} <= set(chosen) or "e" in chosen

    assert fewest("abcde", suffice) == ["b", "d"]
    assert fewest("acde", suffice) == ["a", "c", "d"]


def test_few_trials_find_a_few_of_many():
    trials = []
    found = fewest(range(1000), lambda chosen: trials.append(1) or {17, 600, 601} <= set(chosen))
    assert found == [17, 600, 601]
    assert len(trials) <= 3 * 11 + 5


def test_the_lowest_class_then_the_most_recent_then_the_smallest_goes_first(pool):
    cards = pool.gpus(4)
    priorities = pool.snapshot().priorities
    low = pool.lease(pool.job(1, priority="low"), cards[:1], 900, start=5)
    late = pool.lease(pool.job(2), cards[:1], 900, start=20)
    small = pool.lease(pool.job(3), cards[:1], 900, start=10)
    busy = pool.lease(pool.job(4, cpus_milli=2000), cards[:1], 900, start=10)
    large = pool.lease(pool.job(5, 2), cards[:2], 900, start=10)
    high = pool.lease(pool.job(6, priority="high"), cards[:1], 900, start=30)
    ordered = sorted([high, large, busy, small, late, low], key=lambda lease: by_harm(lease, priorities))
    assert [lease.work for lease in ordered] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("victim", "taker", "above"),
    [
        (("b",), ("a",), ("b",)),
        (("b1", "b"), ("a1", "a"), ("b1", "b")),
        (("a2", "a"), ("a1", "a"), ("a2",)),
        (("a",), ("a1", "a"), ("a",)),
        (("a1", "a"), ("a",), ("a1",)),
        (("a",), ("a",), ("a",)),
    ],
)
def test_who_must_be_above_what_it_owns(victim, taker, above):
    assert must_be_above(victim, taker) == above


class TestExcess:
    """A group gives back what it has too much of, and no more."""

    def victim(self, pool, milli, group="b", above=("b",), **more):
        lease = pool.lease(pool.job(1, group=group), pool.gpus(1), 900)
        return Victim(lease, "reclaim", {"gpu_milli": milli, **more}, (group, "top"), above)

    def test_each_that_leaves_counts(self, pool):
        excess = Excess({"b": {"gpu_milli": 1500}}.__getitem__)
        one = self.victim(pool, 1000)
        assert [excess.take(one, {"gpu_milli"}) for _ in range(3)] == [True, True, False]

    def test_all_groups_in_between_must_have_too_much(self, pool):
        held = {"b": {"gpu_milli": 1000}, "top": {}}
        one = self.victim(pool, 1000, above=("b", "top"))
        assert not Excess(held.__getitem__).allows(one, {"gpu_milli"})
        held["top"] = {"gpu_milli": 1}
        assert Excess(held.__getitem__).allows(one, {"gpu_milli"})

    def test_only_what_lacks_counts(self, pool):
        excess = Excess({"b": {"cpus_milli": 1000}}.__getitem__)
        one = self.victim(pool, 1000, cpus_milli=500)
        assert not excess.allows(one, {"gpu_milli"})
        assert excess.allows(one, {"gpu_milli", "cpus_milli"})
        assert not excess.allows(self.victim(pool, 1000, cpus_milli=0), {"cpus_milli"})

    def test_who_may_not_leave_does_not_count(self, pool):
        excess = Excess({"b": {"gpu_milli": 1000, "cpus_milli": 1000}}.__getitem__)
        one = self.victim(pool, 0, cpus_milli=1000)
        assert not excess.take(one, {"gpu_milli"})
        assert excess.take(one, {"cpus_milli"})

    def test_a_group_is_above_until_nothing_is_left_of_anything(self, pool):
        excess = Excess({"b": {"gpu_milli": 1000, "cpus_milli": 500}, "c": {}}.__getitem__)
        excess.leave(("b",), {"gpu_milli": 1000})
        assert excess.any("b")
        excess.leave(("b",), {"cpus_milli": 500})
        assert not excess.any("b")
        assert not excess.any("c")

    def test_a_copy_goes_on_from_there_and_its_own_way(self, pool):
        excess = Excess({"b": {"gpu_milli": 2000}}.__getitem__)
        excess.take(self.victim(pool, 1000), {"gpu_milli"})
        copy = excess.copy()
        assert copy.take(self.victim(pool, 1000), {"gpu_milli"})
        assert not copy.allows(self.victim(pool, 1000), {"gpu_milli"})
        assert excess.allows(self.victim(pool, 1000), {"gpu_milli"})

    def test_where_no_group_must_be_above_anybody_may_go(self, pool):
        assert Excess({}.__getitem__).take(self.victim(pool, 1000, above=()), set())


class TestHandBack:
    """A job is asked its grace before the window ends in which, or after whose end, it began."""

    windows = ((100, 200), (300, 400))

    def snapshot(self, pool, *leases, lend=None):
        lend = lend or Lend("training", "night", by_day=True)
        cards = pool.gpus(2, partition="development")
        snapshot = pool.snapshot([], leases, gpus=cards, windows={"night": self.windows})
        partitions = {
            "development": Partition("development", frozenset({"session"}), lend=lend),
            "training": Partition("training", frozenset({"job"})),
        }
        object.__setattr__(snapshot, "partitions", partitions)
        return snapshot

    def lease(self, pool, start=120, end=900, grace=20, **more):
        more.setdefault("resumable", True)
        cards = pool.gpus(2, partition="development")
        return replace(pool.lease(pool.job(1, grace=grace, **more), cards[:1], end, start=start), id=7)

    def asked(self, pool, now, **more):
        snapshot = self.snapshot(pool, self.lease(pool, **more))
        return hand_backs(snapshot, Ends(snapshot, now), now)

    def test_at_its_grace_before_the_end_of_the_window(self, pool):
        assert self.asked(pool, 179) == []
        assert self.asked(pool, 180) == [Stop(1, 7, "hand_back")]

    def test_by_day_at_the_end_of_the_next_window(self, pool):
        assert self.asked(pool, 379, start=250) == []
        assert self.asked(pool, 380, start=250) == [Stop(1, 7, "hand_back")]

    def test_one_that_was_missed_is_asked_at_once(self, pool):
        assert self.asked(pool, 230) == [Stop(1, 7, "hand_back")]

    def test_who_would_end_a_little_later_is_asked(self, pool):
        assert self.asked(pool, 180, end=201) == [Stop(1, 7, "hand_back")]

    @pytest.mark.parametrize("more", [{"end": 200}, {"resumable": False}, {"kind": "session"}])
    def test_who_is_not_asked(self, pool, more):
        assert self.asked(pool, 190, **more) == []

    def test_after_the_last_window_nothing_is_handed_back(self, pool):
        ends = Ends(self.snapshot(pool), 500)
        assert (ends.hand_back("development", 350), ends.hand_back("development", 450)) == (400, None)
        assert ends.hand_back("training", 350) is None

    def test_nobody_is_asked_twice(self, pool):
        lease = self.lease(pool)
        object.__setattr__(lease, "asked", 180)
        snapshot = self.snapshot(pool, lease)
        assert asked_at(lease, Ends(snapshot, 190)) is None

    def test_without_grace_a_job_is_gone_a_second_later(self, pool):
        assert leaves_at(self.lease(pool, grace=0), 50) == 51
