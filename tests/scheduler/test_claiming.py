"""Who is asked to stop for whom, in whole passes: for preempting classes, and for sessions."""

from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.model import Lend, Partition, PriorityClass
from jupyter_gpupool.scheduler.plan import plan
from tests.scheduler.site import GRACE, NOW, Site, told
from tests.scheduler.told import promised, started

URGENT = {
    "low": PriorityClass("low", -100, 500),
    "normal": PriorityClass("normal", 0),
    "urgent": PriorityClass("urgent", 1000, 4000, preempts=True),
}


class TestPreempting:
    """A class that preempts stops lower resumable jobs of its group, inside quota only."""

    def site(self, pool, **more):
        plain = {"cards": 2, "groups": [("a", 2), ("b", 0)]}
        return Site(pool, priorities=URGENT, **{**plain, **more})

    def test_the_lowest_of_its_own_group_stops(self, pool, decide):
        site = self.site(pool)
        held = [site.run(1, "a", 0), site.run(2, "a", 1, priority="low", start=NOW - 9000)]
        decided = decide(site.snapshot([site.want(9, "a", priority="urgent")], held), NOW)
        assert told(decided) == [(2, "preempt", 9)]
        assert promised(decided) == {9: NOW + GRACE}

    def test_the_lowest_go_wherever_they_are_where_quota_lacks_too(self, pool, decide):
        """Two must stop for its quota: the two of a lower class, though they are on two nodes."""
        site = self.site(pool, nodes=2, groups=[("a", 2), ("b", 2)])
        held = [
            site.run(1, "a", 0, priority="low"),
            site.run(2, "b", 1, resumable=False),
            site.run(3, "a", 2, priority="low"),
            site.run(4, "a", 3, start=NOW - 3000),
        ]
        decided = decide(site.snapshot([site.want(9, "a", priority="urgent")], held), NOW)
        assert sorted(told(decided)) == [(1, "preempt", 9), (3, "preempt", 9)]

    @pytest.mark.parametrize(("age", "asked"), [(599, []), (600, [1])])
    def test_its_own_are_safe_for_their_least_run_too(self, pool, decide, age, asked):
        site = self.site(pool, cards=1, groups=[("a", 1), ("b", 0)])
        held = [site.run(1, "a", 0, start=NOW - age)]
        decided = decide(site.snapshot([site.want(9, "a", priority="urgent")], held), NOW)
        assert [lease for lease, _, _ in told(decided)] == asked

    def test_not_for_more_than_its_quota(self, pool, decide):
        site = self.site(pool, groups=[("a", 1), ("b", 1)])
        held = [site.run(1, "a", 0), site.run(2, "b", 1)]
        assert told(decide(site.snapshot([site.want(9, "a", 2, priority="urgent")], held), NOW)) == []

    def test_not_who_is_of_the_same_class(self, pool, decide):
        site = self.site(pool)
        held = [site.run(n, "a", n - 1, priority="urgent") for n in (1, 2)]
        assert told(decide(site.snapshot([site.want(9, "a", priority="urgent")], held), NOW)) == []

    def test_an_ordinary_class_stops_nobody_of_its_group(self, pool, decide):
        site = self.site(pool)
        held = [site.run(n, "a", n - 1, priority="low") for n in (1, 2)]
        assert told(decide(site.snapshot([site.want(9, "a")], held), NOW)) == []

    def test_what_others_borrow_goes_too(self, pool, decide):
        site = self.site(pool)
        held = [site.run(1, "a", 0), site.run(2, "b", 1)]
        decided = decide(site.snapshot([site.want(9, "a", 2, priority="urgent")], held), NOW)
        assert sorted(told(decided)) == [(1, "preempt", 9), (2, "reclaim", 9)]


NIGHT = {"night": ((0, 10 * NOW),)}


class TestClaims:
    """A session gets a lent card within the grace of the job that is on it."""

    def site(self, pool, cards=2, groups=(("a", 2), ("b", 2)), **more):
        site = Site(pool, groups=groups, windows=NIGHT, **more)
        site.cards = pool.gpus(cards, partition="development")
        lend = Lend("training", "night")
        self.partitions = {
            "development": Partition("development", frozenset({"session"}), lend=lend),
            "training": Partition("training", frozenset({"job"})),
        }
        return site

    def decide(self, decide, site, waiting, held, now=NOW, **more):
        return decide(replace(site.snapshot(waiting, held, **more), partitions=self.partitions), now)

    def test_a_lent_job_is_asked_however_young_and_inside_quota(self, pool, decide):
        site = self.site(pool)
        held = [site.run(1, "b", 0, start=NOW - 10), site.run(2, "b", 1, start=NOW - 20)]
        decided = self.decide(decide, site, [site.want(9, "a", kind="session")], held)
        assert told(decided) == [(1, "session", 9)]
        assert promised(decided) == {9: NOW + GRACE}

    @pytest.mark.parametrize(("age", "asked"), [(599, []), (600, [(1, "reclaim", 9)])])
    def test_a_job_asks_a_lent_one_only_after_its_least_run(self, pool, decide, age, asked):
        site = self.site(pool, cards=1, groups=[("a", 1), ("b", 0)])
        held = [site.run(1, "b", 0, start=NOW - age)]
        wanted = site.want(9, "a", resumable=True, grace=GRACE)
        assert told(self.decide(decide, site, [wanted], held)) == asked

    def test_who_hands_its_card_back_counts_as_gone(self, pool, decide):
        """Of b's two, one too many, the lent card comes back at the end of the night: nobody goes for a."""
        site = self.site(pool, cards=1, groups=[("a", 2), ("b", 1)])
        site.cards += pool.gpus(1)
        site.more["windows"] = {"night": ((0, NOW + GRACE),)}
        held = [site.run(1, "b", 0), site.run(2, "b", 1)]
        decided = self.decide(decide, site, [site.want(9, "a")], held)
        assert told(decided) == [(1, "hand_back", None)]

    def test_those_of_its_own_group_go_first(self, pool, decide):
        site = self.site(pool)
        held = [site.run(1, "b", 0, start=NOW - 10), site.run(2, "a", 1, start=NOW - 20)]
        decided = self.decide(decide, site, [site.want(9, "a", kind="session")], held)
        assert told(decided) == [(2, "session", 9)]

    def test_nobody_for_a_session_beyond_its_quota(self, pool, decide):
        site = self.site(pool, groups=[("a", 1), ("b", 2)])
        mine = site.run(3, "a", 0, kind="session", resumable=False)
        held = [mine, site.run(1, "b", 1)]
        decided = self.decide(decide, site, [site.want(9, "a", kind="session")], held)
        assert told(decided) == []

    def test_two_sessions_ask_two_and_neither_asks_again(self, pool, decide):
        site = self.site(pool)
        held = [site.run(1, "b", 0), site.run(2, "b", 1)]
        waiting = [site.want(8, "a", kind="session"), site.want(9, "a", kind="session")]
        first = self.decide(decide, site, waiting, held)
        assert len(told(first)) == 2
        asked = [replace(lease, asked=NOW) for lease in held]
        for now in (NOW + 1, NOW + GRACE - 1, NOW + GRACE + 5):
            again = self.decide(decide, site, waiting, asked, now, promises=first.promises)
            assert told(again) == []
            assert len(again.promises) == 2

    def test_the_room_is_kept_from_jobs(self, pool, decide):
        site = self.site(pool, cards=1)
        held = [site.run(1, "b", 0)]
        claimed = self.decide(decide, site, [site.want(9, "a", kind="session")], held)
        job = site.want(5, "b", resumable=True, grace=GRACE)
        waiting = [site.want(9, "a", kind="session"), job]
        gone = self.decide(decide, site, [job], [], NOW + 30)
        assert started(gone) == [5]
        kept = self.decide(decide, site, waiting, [], NOW + 30, promises=claimed.promises)
        assert started(kept) == [9]

    def test_two_small_sessions_share_the_card_of_one_job(self, pool, decide):
        site = self.site(pool, cards=2)
        held = [site.run(1, "b", 0, start=NOW - 10), site.run(2, "b", 1, start=NOW - 20)]
        waiting = [site.want(n, "a", kind="session", gpu_mib=4096) for n in (7, 8, 9)]
        decided = self.decide(decide, site, waiting, held)
        assert told(decided) == [(1, "session", 7)]
        assert promised(decided) == dict.fromkeys((7, 8, 9), NOW + GRACE)

    def test_a_promise_of_a_job_gives_way_and_is_told(self, pool, decide):
        site = self.site(pool, cards=1)
        held = [site.run(1, "b", 0, limit=3600 + 400)]
        job = site.want(5, "b", resumable=True, grace=GRACE)
        first = self.decide(plan, site, [job], held)
        assert promised(first) == {5: NOW + 400}
        waiting = [job, site.want(9, "a", kind="session")]
        decided = self.decide(decide, site, waiting, held, promises=first.promises)
        assert promised(decided) == {9: NOW + GRACE, 5: NOW + GRACE + 3600}
        assert [move.cause for move in decided.moves] == ["session 9"]
