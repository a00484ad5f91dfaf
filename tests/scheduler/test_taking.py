"""Who is asked to stop for whom, in whole passes: what a group is owed is taken back."""

from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.model import (
    Node,
    Promise,
    Quota,
    Settings,
    UserLimits,
)
from jupyter_gpupool.scheduler.plan import plan
from tests.scheduler.conftest import CARD
from tests.scheduler.site import GRACE, NOW, Site, told
from tests.scheduler.told import promised, started


class TestReclaim:
    """What a group is owed comes back from those that stand above what they own."""

    def test_the_owner_gets_its_card_at_the_end_of_the_grace(self, pool, decide):
        site = Site(pool)
        held = [site.run(n, "b", n - 1, start=NOW - 3600 - n) for n in (1, 2, 3, 4)]
        decided = decide(site.snapshot([site.want(9, "a")], held), NOW)
        assert told(decided) == [(1, "reclaim", 9)]
        assert promised(decided) == {9: NOW + GRACE}
        assert started(decided) == []

    def test_it_takes_no_more_than_it_is_owed_and_no_more_than_the_other_has_too_much(self, pool, decide):
        site = Site(pool, cards=4, groups=[("a", 1), ("b", 2)])
        held = [site.run(n, "b", n - 1) for n in (1, 2, 3, 4)]
        waiting = [site.want(n, "a") for n in (7, 8, 9)]
        decided = decide(site.snapshot(waiting, held), NOW)
        assert [taker for _, _, taker in told(decided)] == [7]

    def test_nobody_inside_quota_is_asked(self, pool, decide):
        site = Site(pool, groups=[("a", 4), ("b", 2), ("c", 2)])
        held = [site.run(n, group, n - 1) for n, group in ((1, "b"), (2, "b"), (3, "c"), (4, "c"))]
        assert told(decide(site.snapshot([site.want(9, "a")], held), NOW)) == []

    def test_nobody_is_asked_for_a_job_above_quota(self, pool, decide):
        site = Site(pool, groups=[("a", 1), ("b", 1)])
        held = [site.run(n, "b", n - 1) for n in (1, 2, 3, 4)]
        assert told(decide(site.snapshot([site.want(9, "a", 2)], held), NOW)) == []

    @pytest.mark.parametrize(("age", "asked"), [(599, []), (600, [1])])
    def test_a_job_is_safe_for_its_least_run(self, pool, decide, age, asked):
        site = Site(pool, cards=1, groups=[("a", 1), ("b", 0)])
        held = [site.run(1, "b", 0, start=NOW - age)]
        decided = decide(site.snapshot([site.want(9, "a")], held), NOW)
        assert [lease for lease, _, _ in told(decided)] == asked

    @pytest.mark.parametrize("more", [{"resumable": False}, {"kind": "session"}])
    def test_who_cannot_resume_is_not_asked(self, pool, decide, more):
        site = Site(pool, cards=1, groups=[("a", 1), ("b", 0)])
        decided = decide(site.snapshot([site.want(9, "a")], [site.run(1, "b", 0, **more)]), NOW)
        assert told(decided) == []

    def test_nobody_is_asked_unless_the_taker_then_fits(self, pool, decide):
        site = Site(pool, groups=[("a", 3), ("b", 1)])
        held = [
            site.run(1, "b", 0),
            site.run(2, "b", 1),
            site.run(3, "b", 2, resumable=False),
            site.run(4, "b", 3, resumable=False),
        ]
        assert told(decide(site.snapshot([site.want(9, "a", 3)], held), NOW)) == []
        assert len(told(decide(site.snapshot([site.want(9, "a", 2)], held), NOW))) == 2

    @pytest.mark.parametrize(("left", "asked"), [(GRACE, []), (GRACE + 1, [1])])
    def test_nobody_is_asked_where_room_comes_by_itself_within_the_grace(self, pool, decide, left, asked):
        site = Site(pool, cards=2, groups=[("a", 1), ("b", 0)])
        short = site.run(2, "b", 1, start=NOW - 3600, resumable=False, limit=3600 + left)
        decided = decide(site.snapshot([site.want(9, "a")], [site.run(1, "b", 0), short]), NOW)
        assert [lease for lease, _, _ in told(decided)] == asked
        assert promised(decided) == {9: NOW + GRACE}

    def test_nobody_is_asked_twice(self, pool, decide):
        site = Site(pool)
        held = [site.run(n, "b", n - 1) for n in (1, 2, 3, 4)]
        snapshot = site.snapshot([site.want(9, "a")], held)
        first = decide(snapshot, NOW)
        (stop,) = first.stops
        asked = tuple(replace(x, asked=NOW) if x.id == stop.lease else x for x in held)
        later = replace(snapshot, leases=asked, promises=first.promises)
        for now in (NOW + 1, NOW + GRACE - 1, NOW + GRACE, NOW + GRACE + 30):
            assert told(decide(later, now)) == []
        gone = replace(later, leases=tuple(x for x in asked if x.id != stop.lease))
        assert started(decide(gone, NOW + 60)) == [9]

    def test_two_takers_take_what_both_are_owed(self, pool, decide):
        site = Site(pool)
        held = [site.run(n, "b", n - 1) for n in (1, 2, 3, 4)]
        decided = decide(site.snapshot([site.want(8, "a"), site.want(9, "a")], held), NOW)
        assert [taker for _, _, taker in told(decided)] == [8, 9]
        assert len({lease for lease, _, _ in told(decided)}) == 2

    def test_victims_of_one_node_are_taken_and_the_others_spared(self, pool, decide):
        site = Site(pool, cards=4, nodes=2, groups=[("a", 4), ("b", 2)])
        held = [site.run(n, "b", n - 1, start=NOW - 3600 - (n == 1)) for n in (1, 2, 3, 4)]
        held += [site.run(n, "b", n - 1, resumable=n != 5) for n in (5, 6, 7, 8)]
        decided = decide(site.snapshot([site.want(9, "a", 4)], held), NOW)
        assert sorted(lease for lease, _, _ in told(decided)) == [1, 2, 3, 4]

    def test_who_goes_first_elsewhere_is_no_reason_to_stop_nobody(self, pool, decide):
        """The lowest of b is alone on its node, and b has only one too many: its other job goes, with c's."""
        site = Site(pool, cards=2, nodes=2, groups=[("a", 3), ("b", 1), ("c", 0)])
        held = [site.run(1, "c", 0), site.run(2, "b", 1), site.run(3, "b", 2, priority="low")]
        held.append(site.run(4, "a", 3, resumable=False))
        decided = decide(site.snapshot([site.want(9, "a", 2)], held), NOW)
        assert sorted(told(decided)) == [(1, "reclaim", 9), (2, "reclaim", 9)]

    def test_whole_nodes_are_taken_for_a_job_of_several(self, pool, decide):
        site = Site(pool, cards=2, nodes=2, groups=[("a", 4), ("b", 0)])
        held = [site.run(n, "b", n - 1) for n in (1, 2, 3, 4)]
        decided = decide(site.snapshot([site.want(9, "a", 4)], held), NOW)
        assert len(told(decided)) == 4
        assert promised(decided) == {9: NOW + GRACE}

    def test_quota_alone_is_taken_back_where_cards_are_free(self, pool, decide):
        """c2 is owed what its sister borrows inside a common limit; cards are free elsewhere."""
        parent = replace(pool.group("c", 0), quota=Quota({"gpu_milli": 0}, limit={"gpu_milli": 4000}))
        site = Site(pool, cards=8, groups=[parent, ("c1", 2, "c"), ("c2", 2, "c")])
        held = [site.run(n, "c1", n - 1) for n in (1, 2, 3, 4)]
        decided = decide(site.snapshot([site.want(9, "c2")], held), NOW)
        assert len(told(decided)) == 1
        assert promised(decided) == {9: NOW + GRACE}

    def test_the_common_ancestor(self, pool, decide):
        """b1 is above its quota only inside b: nobody outside of b may take from it."""
        groups = [("a", 2), ("b", 0), ("b1", 1, "b"), ("b2", 1, "b")]
        site = Site(pool, cards=2, groups=groups)
        held = [site.run(1, "b1", 0), site.run(2, "b1", 1)]
        assert told(decide(site.snapshot([site.want(9, "a")], held), NOW)) == []
        assert len(told(decide(site.snapshot([site.want(9, "b2")], held), NOW))) == 1

    def test_a_group_takes_back_from_those_below_it(self, pool, decide):
        """What b has above its own is a's, under which it is: a need not be above its quota for that."""
        site = Site(pool, cards=1, groups=[("a", 2), ("b", 0, "a")])
        decided = decide(site.snapshot([site.want(9, "a")], [site.run(1, "b", 0)]), NOW)
        assert told(decided) == [(1, "reclaim", 9)]

    def test_only_who_has_too_much_of_what_lacks(self, pool, decide):
        """b has too many CPUs, c too many cards: a lacks cards."""
        groups = [
            ("a", 1),
            pool.group("b", 2, quota={"cpus_milli": 1000}),
            pool.group("c", 1),
        ]
        site = Site(pool, cards=4, groups=groups)
        held = [site.run(n, "b", n - 1, start=NOW - 900) for n in (1, 2)]  # of the two, b's are the younger
        held += [site.run(n, "c", n - 1) for n in (3, 4)]
        decided = decide(site.snapshot([site.want(9, "a")], held), NOW)
        assert told(decided) == [(4, "reclaim", 9)]

    @pytest.mark.parametrize(
        ("lacks", "enough"), [("cpus_milli", "memory_mib"), ("memory_mib", "cpus_milli")]
    )
    def test_only_who_has_too_much_of_what_a_node_lacks(self, pool, decide, lacks, enough):
        """b has too much of what is enough to the last bit, c too much of what lacks: both would do."""
        owed = {"cpus_milli": 10_000, "memory_mib": 10_000}
        groups = [
            pool.group("a", 1, quota=owed),
            pool.group("b", 1, quota=owed | {lacks: 20_000}),
            pool.group("c", 1, quota=owed | {enough: 20_000}),
        ]
        site = Site(pool, groups=groups)
        site.more["nodes"] = [Node("node1", **{lacks: 45_000, enough: 50_000})]
        takes = {"cpus_milli": 20_000, "memory_mib": 20_000}
        held = [site.run(1, "b", 0, start=NOW - 900, **takes), site.run(2, "c", 1, **takes)]
        wanted = site.want(9, "a", cpus_milli=10_000, memory_mib=10_000)
        assert told(decide(site.snapshot([wanted], held), NOW)) == [(2, "reclaim", 9)]

    def test_of_what_no_group_is_owed_whoever_is_above_quota_gives_back(self, pool, decide):
        """The node's CPUs lack, of which no quota speaks, and cards are free."""
        site = Site(pool, groups=[("a", 2), ("b", 1)])
        held = [site.run(n, "b", n - 1, start=NOW - 3600 + n, cpus_milli=32_000) for n in (1, 2)]
        decided = decide(site.snapshot([site.want(9, "a")], held), NOW)
        assert told(decided) == [(2, "reclaim", 9)]

    def test_who_leaves_already_counts_as_gone(self, pool, decide):
        """More is owed than there is: b has one too many, and that one has been asked for another job."""
        site = Site(pool, groups=[("a", 2), ("b", 3)])
        held = [site.run(n, "b", n - 1) for n in (1, 2, 3, 4)]
        held[0] = replace(held[0], asked=NOW - 10)
        promise = Promise(8, NOW - 10 + GRACE, held[0].placement, NOW - 10)
        waiting = [site.want(8, "a"), site.want(9, "a")]
        decided = decide(site.snapshot(waiting, held, promises=(promise,)), NOW)
        assert told(decided) == []

    def test_who_is_asked_for_the_first_taker_counts_as_gone_for_the_second(self, pool, decide):
        site = Site(pool, groups=[("a", 2), ("b", 3)])
        held = [site.run(n, "b", n - 1) for n in (1, 2, 3, 4)]
        decided = decide(site.snapshot([site.want(8, "a"), site.want(9, "a")], held), NOW)
        assert told(decided) == [(4, "reclaim", 8)]

    def test_what_one_taker_leaves_of_the_room_it_gets_helps_the_next(self, pool, decide):
        site = Site(pool, cards=3, groups=[("a", 3), ("b", 0)])
        held = [site.run(1, "b", 0, 2, start=NOW - 900), site.run(2, "b", 2)]
        decided = decide(site.snapshot([site.want(8, "a"), site.want(9, "a", 2)], held), NOW)
        assert told(decided) == [(1, "reclaim", 8), (2, "reclaim", 9)]

    @pytest.mark.parametrize("mib", [1024, CARD])
    def test_a_slice_may_be_a_whole_card(self, pool, decide, mib):
        site = Site(pool, cards=1, groups=[("a", 1), ("b", 0)])
        decided = decide(site.snapshot([site.want(9, "a", gpu_mib=mib)], [site.run(1, "b", 0)]), NOW)
        assert told(decided) == [(1, "reclaim", 9)]

    def test_what_a_borrower_is_promised_is_none_of_what_is_owed(self, pool, decide):
        site = Site(pool, cards=3, groups=[("a", 1), ("b", 0)])
        ends = {"resumable": False, "limit": 3600 + 60}
        held = [site.run(1, "b", 0), site.run(2, "b", 1, 2, **ends)]
        promise = Promise(8, NOW + 60, held[1].placement, NOW - 10)
        waiting = [site.want(8, "a", 2, priority="high"), site.want(9, "a")]
        decided = decide(site.snapshot(waiting, held, promises=(promise,)), NOW)
        assert told(decided) == [(1, "reclaim", 9)]

    @pytest.mark.parametrize("left", [60, GRACE])
    def test_who_ends_by_then_is_not_asked_and_not_counted(self, pool, decide, left):
        """b has one too many; the one that would be asked first ends in time, and a needs both cards."""
        site = Site(pool, cards=2, groups=[("a", 2), ("b", 1)])
        held = [site.run(1, "b", 0), site.run(2, "b", 1, limit=3600 + left)]
        decided = decide(site.snapshot([site.want(9, "a", 2)], held), NOW)
        assert told(decided) == [(1, "reclaim", 9)]

    def test_a_promise_that_comes_later_is_brought_forward(self, pool, decide):
        site = Site(pool, cards=1, groups=[("a", 1), ("b", 0)])
        young = site.run(1, "b", 0, start=NOW - 100, limit=8000)
        first = plan(site.snapshot([site.want(9, "a")], [young]), NOW)
        assert promised(first) == {9: NOW + 7900}
        later = site.snapshot([site.want(9, "a")], [young], promises=first.promises)
        decided = decide(later, NOW + 500)
        assert told(decided) == [(1, "reclaim", 9)]
        assert promised(decided) == {9: NOW + 500 + GRACE}
        assert decided.moves == ()

    def test_the_promise_of_a_borrower_gives_way_and_is_told(self, pool, decide):
        site = Site(pool, cards=1, groups=[("a", 1), ("b", 0), ("c", 0)], settings=Settings(promises=1))
        held = [site.run(1, "b", 0, limit=3600 + 300)]
        first = plan(site.snapshot([site.want(5, "c", resumable=True)], held), NOW)
        assert promised(first) == {5: NOW + 300}
        later = site.snapshot(
            [site.want(5, "c", resumable=True), site.want(9, "a")], held, promises=first.promises
        )
        decided = decide(later, NOW)
        assert told(decided) == [(1, "reclaim", 9)]
        assert promised(decided) == {9: NOW + GRACE, 5: NOW + GRACE + 3600}
        assert [(move.work, move.cause) for move in decided.moves] == [(5, "reclaim for job 9 of a")]

    def test_a_user_limit_asks_nobody(self, pool, decide):
        site = Site(pool, cards=2, groups=[pool.group("a", 2, user=UserLimits(running_jobs=1)), ("b", 0)])
        held = [site.run(1, "a", 0), site.run(2, "b", 1)]
        assert told(decide(site.snapshot([site.want(9, "a")], held), NOW)) == []

    def test_promises_that_are_all_given_keep_nobody_from_what_is_owed(self, pool, decide):
        site = Site(pool, groups=[("a", 1), ("b", 0)], settings=Settings(promises=0))
        held = [site.run(n, "b", n - 1) for n in (1, 2, 3, 4)]
        assert promised(decide(site.snapshot([site.want(9, "a")], held), NOW)) == {9: NOW + GRACE}


def test_a_session_takes_back_what_is_owed_where_jobs_run_too(pool, decide):
    site = Site(pool, cards=2, groups=[("a", 1), ("b", 1)])
    held = [site.run(1, "b", 0), site.run(2, "b", 1)]
    decided = decide(site.snapshot([site.want(9, "a", kind="session")], held), NOW)
    assert len(told(decided)) == 1
    assert promised(decided) == {9: NOW + GRACE}


def test_a_start_tells_whether_it_borrows(pool, decide):
    site = Site(pool, cards=3, groups=[("a", 1), ("b", 1)])
    decided = decide(site.snapshot([site.want(8, "a"), site.want(9, "a")], []), NOW)
    assert [(start.work, start.borrowed) for start in decided.starts] == [(8, False), (9, True)]


class TestQuotasByType:
    """Two cards are owed, but none of them an H100."""

    @pytest.fixture
    def site(self, pool):
        owed = {"gpu_milli.h100": 0}
        site = Site(pool, groups=[pool.group("a", 2, quota=owed), pool.group("b", 0, quota=owed)])
        site.cards = (*pool.gpus(1, model="SIM A100"), *pool.gpus(1, model="SIM H100", first=2))
        return site

    def test_nothing_is_taken_back_of_a_type_that_is_not_owed(self, site, decide):
        held = [site.run(1, "a", 0, resumable=False), site.run(2, "b", 1)]
        assert told(decide(site.snapshot([site.want(9, "a")], held), NOW)) == []

    def test_what_is_owed_is_taken_back(self, site, decide):
        held = [site.run(1, "b", 0), site.run(2, "b", 1)]
        assert told(decide(site.snapshot([site.want(9, "a")], held), NOW)) == [(1, "reclaim", 9)]

    def test_a_start_on_such_a_card_borrows(self, site, decide):
        held = [site.run(1, "b", 0)]
        decided = decide(site.snapshot([site.want(9, "a")], held), NOW)
        assert [(start.work, start.borrowed) for start in decided.starts] == [(9, True)]
