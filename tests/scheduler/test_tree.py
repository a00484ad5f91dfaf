"""The quota tree on the timeline, against the formulae written out."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpupool.scheduler.limits import Limits
from jupyter_gpupool.scheduler.model import Budget, Group, Placement, Quota, Reason, Settings
from jupyter_gpupool.scheduler.plan import plan
from jupyter_gpupool.scheduler.quota import GPU, ROOT, UNBOUNDED
from jupyter_gpupool.scheduler.tree import Tally
from tests.scheduler.told import started

HOUR = 3600
CARD = 1000


def available(tree, name, used):
    """What a group may still take, as the rule has it."""
    if name == ROOT:
        return tree.subtree(ROOT) - used[ROOT]
    local, subtree = tree.local(name), tree.subtree(name)
    limit = tree.limit(name)
    may_borrow = UNBOUNDED if limit == UNBOUNDED else limit - subtree
    reach = subtree - local - max(0, used[name] - local) + may_borrow
    return max(0, local - used[name]) + min(available(tree, tree.parent(name), used), reach)


def leases_of(pool, cards, group, count, first=50, **more):
    return [
        pool.lease(pool.job(first + n, group=group, user="bob", **more), [card], 100 * HOUR)
        for n, card in enumerate(cards[:count])
    ]


def free_to(snapshot, work, time=0):
    """What the lines of a work let it take at a time: the least of them."""
    limits = Limits(snapshot, time)
    return min(line.free(time) for line in limits.bounds(work))


class TestBorrowing:
    def pool_of_two(self, pool, waiting=()):
        """A and B own 8, A lends at most 5, B uses 12, A none."""
        cards = pool.gpus(8, nodes=2)
        groups = [pool.group("a", 8, lend=5), pool.group("b", 8)]
        return pool.snapshot(waiting, leases_of(pool, cards, "b", 12), gpus=cards, groups=groups)

    def test_the_worked_value(self, pool):
        snapshot = self.pool_of_two(pool)
        assert free_to(snapshot, pool.job(1)) == 4 * CARD
        assert free_to(snapshot, pool.job(1, group="b")) == 1 * CARD
        limits = Limits(snapshot, 0)
        assert limits.excess("b") == {GPU: 4 * CARD}
        assert limits.excess("a") == {}
        assert limits.inside("a", {GPU: 8 * CARD})
        assert not limits.inside("a", {GPU: 8 * CARD + 1})

    def test_what_is_not_available_comes_by_reclaim(self, pool):
        waiting = [pool.job(1, 4, limit=HOUR), pool.job(2, 4, limit=HOUR)]
        decided = plan(self.pool_of_two(pool, waiting), 0)
        assert started(decided) == [1]
        assert not decided.starts[0].borrowed
        assert decided.verdicts[2].reason is Reason.RECLAIMING

    def test_a_group_that_lends_nothing_finds_its_own_free(self, pool):
        cards = pool.gpus(4)
        groups = [pool.group("a", 2, lend=0), pool.group("b", 2)]
        running = leases_of(pool, cards, "b", 2)
        waiting = [pool.job(1, group="b"), pool.job(2, 2, submitted=9)]
        decided = plan(pool.snapshot(waiting, running, gpus=cards, groups=groups), 0)
        assert started(decided) == [2]
        verdict = decided.verdicts[1]
        assert (verdict.reason, verdict.facts["rule"]) == (Reason.GROUP_QUOTA, "lent")

    def test_a_limit_of_a_group_above_bounds_those_below_together(self, pool):
        cards = pool.gpus(8)
        groups = [
            pool.group("top", 1, limit=3),
            pool.group("a", 1, parent="top"),
            pool.group("b", 0, parent="top"),
            pool.group("c", 6),
        ]
        waiting = [pool.job(n, group=group) for n, group in enumerate("ababc", 1)]
        decided = plan(pool.snapshot(waiting, gpus=cards, groups=groups), 0)
        assert sorted(started(decided)) == [1, 2, 3, 5]
        verdict = decided.verdicts[4]
        assert verdict.reason is Reason.GROUP_QUOTA
        assert (verdict.facts["owner"], verdict.facts["limit"]) == ("top", 3 * CARD)

    def test_the_parent_owns_what_its_children_lend(self, pool):
        groups = [pool.group("top", 1), pool.group("a", 2, parent="top", lend=1), pool.group("b", 5)]
        limits = Limits(pool.snapshot(groups=groups), 0)
        assert limits.subtree("top") == {GPU: 2 * CARD}
        assert limits.upward("a") == ("a", "top")
        assert limits.inside("top", {GPU: 2 * CARD})

    def test_a_start_of_this_pass_counts(self, pool):
        groups = [pool.group("a", 1), pool.group("b", 3)]
        waiting = [pool.job(1), pool.job(2, limit=HOUR), pool.job(3, group="b", submitted=9)]
        decided = plan(pool.snapshot(waiting, groups=groups), 0)
        assert [(start.work, start.borrowed) for start in decided.starts] == [
            (1, False),
            (3, False),
            (2, True),
        ]


names = st.sampled_from(["a", "b", "c", "d"])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.none() | st.integers(0, 3), st.none() | st.integers(0, 4)),
        min_size=4,
        max_size=4,
    ),
    st.lists(st.tuples(names, st.integers(0, 9), st.integers(1, 9), st.integers(1, 3)), max_size=8),
    st.integers(0, 12),
)
def test_what_is_available_over_time_is_what_the_rule_says(pool, shape, spans, total):
    parents = {"a": "pool", "b": "a", "c": "a", "d": "c"}
    groups = {}
    for (name, parent), (owed, lend, over) in zip(parents.items(), shape, strict=True):
        limit = None if over is None else {GPU: 20 + over}
        groups[name] = Group(name, parent, Quota({GPU: owed}, limit, None if lend is None else {GPU: lend}))
    cards = tuple(pool.gpus(total)) if total else ()
    snapshot = pool.snapshot(gpus=cards or pool.gpus(1), groups=groups.values())
    limits = Limits(snapshot, 0)
    tree = limits.trees[GPU]
    works = {name: pool.job(n, group=name) for n, name in enumerate(groups)}
    for name, start, length, many in spans:
        taken = Placement(("node1",), (), many, "training")
        limits.book(works[name], taken, start, start + length, 1)
    for time in range(20):
        own = {}
        for name, start, length, many in spans:
            if start <= time < start + length:
                own[name] = own.get(name, 0) + many
        used = tree.usage(own)
        tally = Tally(tree)
        for name, many in own.items():
            tally.add(name, many)
        for name in groups:
            lines = [line for line in limits.bounds(works[name]) if line.cap.resource == GPU]
            right = available(tree, name, used)
            if not lines:
                assert right >= tree.subtree(ROOT) - used[ROOT]
                continue
            assert min(line.free(time) for line in lines) == right
            for line in lines:
                free = line.free(time)
                assert line.fits(free, time, time + 1)
                assert not line.fits(free + 1, time, time + 1)
                opened = line.openings(free, 3, time)[0][0]
                assert line.fits(free, opened, opened + 3)
                assert not any(line.fits(free, start, start + 3) for start in range(time, opened))
            assert tally.left(name) == tree.subtree(name) - used[name]


class TestSessions:
    def test_they_never_borrow(self, pool):
        groups = [pool.group("a", 2), pool.group("b", 2)]
        waiting = [pool.session(1, 2), pool.session(2)]
        decided = plan(pool.snapshot(waiting, groups=groups), 0)
        assert started(decided) == [1]
        verdict = decided.verdicts[2]
        assert (verdict.reason, verdict.facts["rule"], verdict.facts["used"]) == (
            Reason.GROUP_QUOTA,
            "lasting",
            2 * CARD,
        )

    def test_jobs_of_the_group_that_may_be_stopped_are_not_in_their_way(self, pool):
        cards = pool.gpus(4)
        groups = [pool.group("a", 2, limit=2), pool.group("b", 2)]
        running = [
            pool.lease(pool.job(8, resumable=True), cards[:1], 100 * HOUR),
            pool.lease(pool.job(9, limit=HOUR), cards[1:2], HOUR),
        ]
        decided = plan(pool.snapshot([pool.session(1, 2)], running, gpus=cards, groups=groups), 0)
        assert started(decided) == [1]

    def test_long_jobs_that_cannot_be_stopped_are_until_they_are_short(self, pool):
        cards = pool.gpus(4)
        groups = [pool.group("a", 2)]
        running = [pool.lease(pool.job(9), cards[:1], 10 * HOUR)]
        waiting = [pool.session(1, 2)]
        snapshot = pool.snapshot(waiting, running, gpus=cards, groups=groups)
        decided = plan(snapshot, 0)
        assert started(decided) == []
        assert decided.verdicts[1].facts["frees"] == 10 * HOUR
        assert started(plan(snapshot, 6 * HOUR - 1)) == []
        assert started(plan(snapshot, 6 * HOUR)) == [1]

    def test_they_are_expected_when_such_a_job_is_short_before_it_ends(self, pool):
        cards = pool.gpus(4)
        running = [pool.lease(pool.job(9), cards[:1], 10 * HOUR)]
        snapshot = pool.snapshot([pool.session(1, 2)], running, gpus=cards, groups=[pool.group("a", 2)])
        assert plan(snapshot, 0).verdicts[1].expected_start == 6 * HOUR

    def test_others_that_borrow_leave_them_their_quota(self, pool):
        cards = pool.gpus(4)
        groups = [pool.group("a", 2, lend=2), pool.group("b", 1, lend=0)]
        running = leases_of(pool, cards, "b", 3, resumable=True)
        decided = plan(pool.snapshot([pool.session(1)], running, gpus=cards, groups=groups), 0)
        assert started(decided) == [1]


class TestLongJobsThatCannotBeStopped:
    def test_they_borrow_nothing(self, pool):
        groups = [pool.group("a", 1), pool.group("b", 3)]
        waiting = [pool.job(1, limit=5 * HOUR), pool.job(2, limit=4 * HOUR + 1), pool.job(3, limit=4 * HOUR)]
        decided = plan(pool.snapshot(waiting, groups=groups), 0)
        assert started(decided) == [1, 3]
        verdict = decided.verdicts[2]
        assert (verdict.reason, verdict.facts["rule"]) == (Reason.GROUP_QUOTA, "lasting")
        resumable = [pool.job(4, limit=9 * HOUR, resumable=True)]
        assert started(plan(pool.snapshot(resumable, groups=[pool.group("a", 0)]), 0)) == [4]

    def test_they_stay_inside_for_all_of_their_time(self, pool):
        """Others of the group may hold its quota now, and be stopped; then it is not the group's to use."""
        cards = pool.gpus(4)
        groups = [pool.group("a", 2), pool.group("b", 2)]
        running = leases_of(pool, cards, "a", 2, resumable=True)
        snapshot = pool.snapshot([pool.job(1, limit=5 * HOUR)], running, gpus=cards, groups=groups)
        decided = plan(snapshot, 0)
        assert started(decided) == []
        verdict = decided.verdicts[1]
        assert (verdict.reason, verdict.facts["rule"]) == (Reason.GROUP_QUOTA, "owned")

    def test_the_time_that_may_be_borrowed_is_the_policys(self, pool):
        longer = Settings(borrow_max_time=6 * HOUR)
        waiting = [pool.job(1, limit=6 * HOUR)]
        decided = plan(pool.snapshot(waiting, groups=[pool.group("a", 0)], settings=longer), 0)
        assert started(decided) == [1]


class TestTypesAndOtherResources:
    def test_a_resource_that_is_not_named_is_not_counted(self, pool):
        groups = [pool.group("a", 1), pool.group("b", 1, quota={"cpus_milli": 2000})]
        waiting = [pool.job(1, cpus_milli=60_000)]
        assert started(plan(pool.snapshot(waiting, groups=groups), 0)) == [1]

    def test_what_a_limit_alone_names_bounds_and_is_no_quota(self, pool):
        group = Group("a", "pool", Quota({GPU: 2000}, limit={"cpus_milli": 3000}))
        waiting = [pool.job(1, cpus_milli=2000), pool.job(2, cpus_milli=2000)]
        decided = plan(pool.snapshot(waiting, groups=[group]), 0)
        assert [(start.work, start.borrowed) for start in decided.starts] == [(1, False)]
        assert decided.verdicts[2].facts["what"] == "cpus_milli"

    def test_a_quota_by_type_counts_only_its_cards(self, pool):
        cards = pool.gpus(2, model="H200") + pool.gpus(2, model="A100", first=2)
        group = pool.group("a", 4, quota={"gpu_milli.h200": 1000})
        limits = Limits(pool.snapshot(leases=leases_of(pool, cards, "a", 1), gpus=cards, groups=[group]), 0)
        assert limits.inside("a", {GPU: 1000, "gpu_milli.h200": 0})
        assert not limits.inside("a", {GPU: 1000, "gpu_milli.h200": 1000})

    def test_a_start_counts_as_the_cards_that_it_gets(self, pool):
        """Of a kind of which there are too few, or none free, nothing is borrowed."""
        cards = pool.gpus(1, model="A100") + pool.gpus(2, model="H200", first=2)
        group = pool.group("a", 4, quota={"gpu_milli.a100": 0})
        held = leases_of(pool, cards, "b", 1)
        groups = [group, pool.group("b", 1)]
        for work, running in ((pool.job(1, 2), []), (pool.job(1), held)):
            decided = plan(pool.snapshot([work], running, gpus=cards, groups=groups), 0)
            assert [(start.work, start.borrowed) for start in decided.starts] == [(1, False)]

    def test_what_those_of_no_group_may_have_is_no_card(self, pool):
        waiting = [pool.job(1, group="pool"), pool.job(2, 0, group="pool", cpus_milli=1000)]
        decided = plan(pool.snapshot(waiting), 0)
        assert started(decided) == [2]
        assert decided.verdicts[1].reason is Reason.EXCEEDS_LIMIT


class TestBudgets:
    def snapshot(self, pool, waiting, spent=0, running=(), groups=None, budgets=None, **more):
        budget = Budget(capacity=10 * HOUR * CARD, spent=spent, ends=(24 * HOUR, 48 * HOUR))
        groups = groups or [pool.group("a", 4)]
        budgets = budgets or {"a": budget}
        return pool.snapshot(waiting, running, groups=groups, budgets=budgets, **more)

    def test_a_start_is_paid_for_its_whole_limit(self, pool):
        exact = self.snapshot(pool, [pool.job(1, limit=6 * HOUR)], spent=4 * HOUR * CARD)
        assert started(plan(exact, 0)) == [1]
        beyond = self.snapshot(pool, [pool.job(1, limit=6 * HOUR)], spent=4 * HOUR * CARD + 1)
        decided = plan(beyond, 0)
        assert started(decided) == []
        verdict = decided.verdicts[1]
        assert verdict.reason is Reason.BUDGET
        assert (verdict.facts["used"], verdict.facts["need"]) == (4 * HOUR * CARD + 1, 6 * HOUR * CARD)
        assert verdict.expected_start == 24 * HOUR

    def test_what_runs_has_its_rest_set_apart(self, pool):
        cards = pool.gpus(4)
        running = [pool.lease(pool.job(9), cards[:1], 9 * HOUR)]
        snapshot = self.snapshot(pool, [pool.job(1, limit=2 * HOUR)], 5 * HOUR * CARD, running, gpus=cards)
        assert plan(snapshot, 5 * HOUR).verdicts[1].reason is Reason.BUDGET
        assert started(plan(snapshot, 6 * HOUR)) == [1]

    def test_starts_of_one_pass_are_paid_one_after_the_other(self, pool):
        waiting = [pool.job(n, limit=4 * HOUR) for n in (1, 2, 3)]
        decided = plan(self.snapshot(pool, waiting), 0)
        assert started(decided) == [1, 2]
        assert decided.verdicts[3].expected_start == 24 * HOUR

    def test_what_no_period_that_is_known_pays_for_has_no_expected_start(self, pool):
        budgets = {"a": Budget(10 * HOUR * CARD, 10 * HOUR * CARD, (24 * HOUR,))}
        waiting = [pool.job(n, limit=6 * HOUR) for n in (1, 2)]
        decided = plan(self.snapshot(pool, waiting, budgets=budgets), 0)
        assert {n: verdict.expected_start for n, verdict in decided.verdicts.items()} == {
            1: 24 * HOUR,
            2: None,
        }

    def test_a_class_costs_what_it_charges(self, pool):
        waiting = [
            pool.job(1, limit=5 * HOUR, priority="high"),
            pool.job(2, limit=5 * HOUR + 1, priority="high", user="bob"),
            pool.job(3, limit=20 * HOUR, priority="low"),
        ]
        assert started(plan(self.snapshot(pool, waiting[:1]), 0)) == [1]
        assert plan(self.snapshot(pool, waiting[1:2]), 0).verdicts[2].reason is Reason.EXCEEDS_LIMIT
        assert started(plan(self.snapshot(pool, waiting[2:]), 0)) == [3]

    def test_those_above_pay_too(self, pool):
        groups = [pool.group("top", 0), pool.group("a", 4, parent="top")]
        budgets = {"top": Budget(HOUR * CARD, HOUR * CARD, (24 * HOUR,))}
        decided = plan(self.snapshot(pool, [pool.job(1)], groups=groups, budgets=budgets), 0)
        assert decided.verdicts[1].reason is Reason.BUDGET
        assert decided.verdicts[1].facts["owner"] == "top"

    def test_work_without_cards_costs_nothing(self, pool):
        spent = self.snapshot(pool, [pool.job(1, 0)], spent=10 * HOUR * CARD)
        assert started(plan(spent, 0)) == [1]


class TestArrays:
    def tasks(self, pool, count, limit=2):
        return [pool.job(n, array=70, array_limit=limit) for n in range(1, count + 1)]

    def test_so_many_tasks_run_at_once(self, pool):
        waiting = [*self.tasks(pool, 3), pool.job(9, submitted=9)]
        decided = plan(pool.snapshot(waiting), 0)
        assert started(decided) == [1, 2, 9]
        verdict = decided.verdicts[3]
        assert verdict.reason is Reason.ARRAY_LIMIT
        assert (verdict.facts["used"], verdict.facts["limit"], verdict.facts["owner"]) == (2, 2, "70")
        assert verdict.expected_start == 100

    def test_arrays_do_not_count_for_each_other(self, pool):
        waiting = [*self.tasks(pool, 2, 1), pool.job(5, array=71, array_limit=1)]
        assert started(plan(pool.snapshot(waiting), 0)) == [1, 5]

    def test_tasks_that_run_count(self, pool):
        cards = pool.gpus(4)
        task = self.tasks(pool, 2, 1)
        lease = replace(pool.lease(task[0], cards[:1], 60), array=70, array_limit=1)
        decided = plan(pool.snapshot(task[1:], [lease], gpus=cards), 0)
        assert decided.verdicts[2].reason is Reason.ARRAY_LIMIT


def test_backfill_beside_a_promise(pool):
    """J holds 2 of 4 cards until 60; H wants 4, from then on. S starts now with a limit of 60, not of 61."""
    cards = pool.gpus(4)
    holder = pool.lease(pool.job(9), cards[:2], 60)
    for limit, begun in ((50, [2]), (60, [2]), (61, [])):
        waiting = [pool.job(1, 4), pool.job(2, 2, limit)]
        decided = plan(pool.snapshot(waiting, [holder], gpus=cards), 0)
        assert started(decided) == begun
        assert decided.verdicts[1].expected_start == 60
