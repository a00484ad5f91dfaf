"""What bars a start before any room is looked for, and who may be promised one all the same."""

from jupyter_gpupool.scheduler.model import Budget, Reason, Reservation, UserLimits
from jupyter_gpupool.scheduler.plan import plan


def started(plan_):
    return [start.work for start in plan_.starts]


def promised(plan_):
    return {promise.work: promise.start for promise in plan_.promises}


def reasons(plan_):
    return {id_: verdict.reason for id_, verdict in plan_.verdicts.items()}


class TestWhoMayBePromised:
    """Under Reclaiming, Priority, Resources, GroupQuota and OutsideWindow; under no other reason."""

    def promised(self, pool, work, **more):
        cards = pool.gpus(2)
        running = [pool.lease(pool.job(9, group="b"), cards[:1], 60)]
        groups = more.pop("groups", None) or [pool.group("a", 1), pool.group("b", 1)]
        snapshot = pool.snapshot([work], running, gpus=cards, groups=groups, **more)
        decided = plan(snapshot, 10)
        assert started(decided) == []
        return decided.verdicts[work.id].reason, promised(decided).get(work.id)

    def test_outside_its_window_though_it_rests_too(self, pool):
        windows = {"night": ((100, 300),)}
        work = pool.job(1, window="night", not_before=150)
        assert self.promised(pool, work, windows=windows) == (Reason.OUTSIDE_WINDOW, 150)

    def test_outside_its_window_though_its_user_is_at_a_limit(self, pool):
        windows = {"night": ((100, 300),)}
        cards = pool.gpus(2)
        groups = [pool.group("a", 1, user=UserLimits(running_jobs=1)), pool.group("b", 1)]
        running = [pool.lease(pool.job(8), cards[1:], 200)]
        waiting = [pool.job(1, window="night")]
        snapshot = pool.snapshot(waiting, running, gpus=cards, groups=groups, windows=windows)
        decided = plan(snapshot, 10)
        assert reasons(decided) == {1: Reason.OUTSIDE_WINDOW}
        assert promised(decided) == {1: 200}

    def test_not_while_it_rests(self, pool):
        assert self.promised(pool, pool.job(1, not_before=150)) == (Reason.BACK_OFF, None)

    def test_not_while_all_its_cards_are_kept_from_it(self, pool):
        kept = Reservation(7, frozenset(card.uuid for card in pool.gpus(2)), 5, 80)
        found = self.promised(pool, pool.job(1), reservations=(kept,))
        assert found == (Reason.UNAVAILABLE, None)

    def test_above_quota_where_the_pool_is_full_though_the_budget_lacks_too(self, pool):
        """What comes first of the two is GroupQuota: not inside quota, and not available."""
        ends = (5000,)
        budgets = {"a": Budget(2000 * 100, 2000 * 100, ends)}
        found = self.promised(pool, pool.job(1, 2), budgets=budgets)
        assert found == (Reason.GROUP_QUOTA, 5000)

    def test_not_inside_quota_without_budget(self, pool):
        budgets = {"a": Budget(1000 * 100, 1000 * 100, (5000,))}
        assert self.promised(pool, pool.job(1), budgets=budgets) == (Reason.BUDGET, None)


class TestAboveQuota:
    """Not inside quota with this, and not available: what all groups have together counts too."""

    def decided(self, pool, waiting, busy=4, groups=None):
        cards = pool.gpus(4)
        groups = groups or [pool.group("a", 2), pool.group("b", 2)]
        owners = ["a", "a", "b", "b"]
        running = [
            pool.lease(pool.job(50 + n, group=owners[n], user="bob"), [cards[n]], 60) for n in range(busy)
        ]
        return plan(pool.snapshot(waiting, running, gpus=cards, groups=groups), 0)

    def test_a_borrower_in_a_full_pool_waits_under_group_quota(self, pool):
        decided = self.decided(pool, [pool.job(1)])
        verdict = decided.verdicts[1]
        assert (verdict.reason, verdict.facts["rule"]) == (Reason.GROUP_QUOTA, "lent")
        assert [verdict.facts[name] for name in ("used", "limit", "need", "frees")] == [4000, 4000, 1000, 60]
        assert promised(decided) == {1: 60}

    def test_so_does_one_that_needs_more_than_is_left_to_borrow(self, pool):
        verdict = self.decided(pool, [pool.job(1, 2)], busy=3).verdicts[1]
        assert (verdict.reason, verdict.facts["used"]) == (Reason.GROUP_QUOTA, 3000)

    def test_what_a_start_of_this_pass_takes_counts(self, pool):
        decided = self.decided(pool, [pool.job(1, limit=40), pool.job(2, submitted=9)], busy=3)
        assert started(decided) == [1]
        assert reasons(decided) == {2: Reason.GROUP_QUOTA}

    def test_where_quotas_name_more_than_there_is_it_waits_for_cards(self, pool):
        groups = [pool.group("a", 2), pool.group("b", 4)]
        assert reasons(self.decided(pool, [pool.job(1)], groups=groups)) == {1: Reason.RESOURCES}

    def test_inside_quota_it_waits_for_cards(self, pool):
        groups = [pool.group("a", 3), pool.group("b", 1, lend=0)]
        decided = self.decided(pool, [pool.job(1)], groups=groups)
        assert reasons(decided) == {1: Reason.RECLAIMING}

    def test_what_it_does_not_ask_for_is_no_reason(self, pool):
        assert started(self.decided(pool, [pool.job(1, 0)])) == [1]
