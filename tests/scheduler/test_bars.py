"""What bars a start before any room is looked for, and who may be promised one all the same."""

from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.model import Budget, Reason, Reservation, Settings, UserLimits
from jupyter_gpupool.scheduler.plan import plan
from tests.scheduler.told import promised, reasons, started


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

    def test_above_its_limit_though_the_budget_lacks_too(self, pool):
        """What comes first of the two is GroupQuota: not inside quota, and not available."""
        budgets = {"a": Budget(2000 * 100, 2000 * 100, (5000,))}
        groups = [pool.group("a", 1, limit=2), pool.group("b", 1)]
        cards = pool.gpus(3)
        running = [pool.lease(pool.job(9), cards[:1], 60)]
        waiting = [pool.job(1, 2)]
        snapshot = pool.snapshot(waiting, running, gpus=cards, groups=groups, budgets=budgets)
        decided = plan(snapshot, 10)
        assert reasons(decided) == {1: Reason.GROUP_QUOTA}
        assert promised(decided) == {1: 5000}

    def test_not_inside_quota_without_budget(self, pool):
        budgets = {"a": Budget(1000 * 100, 1000 * 100, (5000,))}
        assert self.promised(pool, pool.job(1), budgets=budgets) == (Reason.BUDGET, None)


class TestAboveQuota:
    """A limit, or what others keep, is GroupQuota; that the cards are in use is not, whoever borrows."""

    def decided(self, pool, waiting, busy=4, groups=None):
        cards = pool.gpus(4)
        groups = groups or [pool.group("a", 2), pool.group("b", 2)]
        owners = ["a", "a", "b", "b"]
        running = [
            pool.lease(pool.job(50 + n, group=owners[n], user="bob"), [cards[n]], 60) for n in range(busy)
        ]
        return plan(pool.snapshot(waiting, running, gpus=cards, groups=groups), 0)

    def test_a_borrower_in_a_full_pool_waits_for_cards_and_ages(self, pool):
        decided = self.decided(pool, [pool.job(1), pool.job(2, submitted=9)])
        assert reasons(decided) == {1: Reason.RESOURCES, 2: Reason.PRIORITY}

    def test_so_does_the_only_group_of_a_pool_that_owns_all_of_it(self, pool):
        cards = pool.gpus(4)
        running = [pool.lease(pool.job(9, 4), cards, 60)]
        snapshot = pool.snapshot([pool.job(1)], running, gpus=cards, groups=[pool.group("a", 4)])
        assert reasons(plan(snapshot, 0)) == {1: Reason.RESOURCES}

    def test_what_others_keep_is_none_of_theirs(self, pool):
        groups = [pool.group("a", 2), pool.group("b", 2, lend=0)]
        assert reasons(self.decided(pool, [pool.job(1)], busy=3, groups=groups)) == {1: Reason.GROUP_QUOTA}

    def test_inside_quota_borrowers_give_back(self, pool):
        groups = [pool.group("a", 3), pool.group("b", 1, lend=0)]
        assert reasons(self.decided(pool, [pool.job(1)], groups=groups)) == {1: Reason.RECLAIMING}


class TestKindsOfCard:
    """A limit is the reason only if it lacks room for the work on every kind of card that would serve."""

    MEMBER = UserLimits(gpu_milli=1000)

    @pytest.mark.parametrize(
        ("more", "small"),
        [({"limit": 1}, Reason.GROUP_QUOTA), ({"user": MEMBER}, Reason.USER_LIMIT)],
    )
    @pytest.mark.parametrize("large_first", [False, True])
    def test_what_lacks_on_small_cards_only_is_not(self, pool, more, small, large_first):
        """20 GiB are 625 of a small card, 313 of a large one; 500 are left, and no slot of the host."""
        cards = list(pool.gpus(1))
        large = [replace(gpu, model="BIG", memory_mib=2 * gpu.memory_mib) for gpu in pool.gpus(1, first=2)]
        running = [pool.lease(pool.job(9, gpu_mib=16 * 1024), cards, 60)]
        groups = [pool.group("a", 1, **more), pool.group("b", 1)]

        def reason(gpus):
            snapshot = pool.snapshot(
                [pool.job(1, gpu_mib=20 * 1024)], running, gpus, groups, settings=Settings(slots=1)
            )
            return reasons(plan(snapshot, 0))[1]

        assert reason(cards) is small
        assert reason([*large, *cards] if large_first else [*cards, *large]) is Reason.RESOURCES
