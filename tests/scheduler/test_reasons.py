from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpupool.scheduler.model import Budget, Group, Quota, Reason, Reservation, Settings, UserLimits
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.reasons import explain
from jupyter_gpupool.scheduler.words import amount_text, decimal, duration_text, size_text, time_text

NOW = 1_800_000_000  # 08:00 UTC on 15 January 2027
HOUR = 3600


def why(snapshot, id_, now=NOW):
    return explain(plan(snapshot, now).verdicts[id_], snapshot)


def busy(pool, cards, hours=1.0, id_=90, **more):
    return [
        pool.lease(pool.job(id_ + n, **more), [card], NOW + int(hours * HOUR) + 60 * n, NOW - HOUR)
        for n, card in enumerate(cards)
    ]


def test_resources(pool):
    cards = pool.gpus(8, nodes=2)
    snapshot = pool.snapshot([pool.job(1, 4)], busy(pool, cards[:14], user="bob"), gpus=cards)
    told = why(snapshot, 1)
    assert (
        told.message == "Waits for 4 cards: 14 of 16 cards in training are busy; the next frees at 09:00 UTC."
    )
    assert told.clears == "It clears when 4 cards can be had at once."


def test_resources_by_memory(pool):
    cards = pool.gpus(1)
    holder = pool.lease(pool.job(9, gpu_mib=30 * 1024), cards, NOW + HOUR)
    told = why(pool.snapshot([pool.job(1, gpu_mib=4096)], [holder], gpus=cards), 1)
    assert told.message == (
        "Waits for 4 GiB of one card: the largest free piece in training is 2 GiB; "
        "the next frees at 09:00 UTC."
    )


def test_resources_of_the_node(pool):
    cards = pool.gpus(2)
    holder = pool.lease(pool.job(9, cpus_milli=60_000), cards[:1], NOW + HOUR)
    told = why(pool.snapshot([pool.job(1, cpus_milli=8_000, memory_mib=1024)], [holder], gpus=cards), 1)
    assert told.message == (
        "Waits for 1 card: no node of training with a free card has 8 CPU cores and 1 GiB of memory free."
    )
    told = why(pool.snapshot([pool.job(1, 0, cpus_milli=8_000)], [holder], gpus=cards), 1)
    assert told.message == "Waits for 8 CPU cores: no node of training has 8 CPU cores free."


def test_priority(pool):
    cards = pool.gpus(2)
    snapshot = pool.snapshot([pool.job(1, 2), pool.job(2)], busy(pool, cards), gpus=cards)
    told = why(snapshot, 2)
    assert told.message == (
        "It is number 2 in the queue, after job 1. "
        "Waits for 1 card: 2 of 2 cards in training are busy; the next frees at 09:00 UTC."
    )
    assert told.clears == "It clears when those before it have started and 1 card can be had."


def test_what_is_free_may_be_reserved(pool):
    cards = pool.gpus(2)
    snapshot = pool.snapshot([pool.job(1, 2), pool.job(2, 1, 5 * HOUR)], busy(pool, cards[:1]), gpus=cards)
    assert why(snapshot, 2).message == (
        "It is number 2 in the queue, after job 1. "
        "Waits for 1 card: what is free is reserved for those before it."
    )


def test_what_is_free_may_be_set_apart_for_others_before_it_would_end(pool):
    cards = pool.gpus(1)
    fans = Reservation(3, frozenset({cards[0].uuid}), NOW + 2 * HOUR, NOW + 9 * HOUR)
    told = why(pool.snapshot([pool.job(1, 1, 5 * HOUR)], gpus=cards, reservations=(fans,)), 1)
    assert told.message == "Waits for 1 card: what is free is set apart for others from 10:00 UTC on."
    assert "with a time limit that ends before, it could start at once" in told.clears
    mine = replace(fans, groups=frozenset({"a"}))
    assert plan(pool.snapshot([pool.job(1, 1, 5 * HOUR)], gpus=cards, reservations=(mine,)), NOW).starts


def test_a_start_that_would_delay_a_promise(pool):
    cards = pool.gpus(2)
    low = pool.job(1, 2, priority="low", submitted=1)
    first = pool.snapshot([low], busy(pool, cards[:1]), gpus=cards)
    settled = pool.after(first, plan(first, NOW), NOW)
    snapshot = replace(settled, waiting=(low, pool.job(2, 1, 5 * HOUR, submitted=2)))
    told = why(snapshot, 2)
    assert told.message == "A start now would delay job 1, which is promised to start at 09:00 UTC."
    assert told.clears == "It clears when job 1 has started; a shorter time limit could fit in before."


def test_group_quota(pool):
    cards = pool.gpus(8)
    owed = {"gpu_milli": 6000, "memory_mib": 64 * 1024}
    group = Group("a", "pool", Quota(owed, limit=owed))
    snapshot = pool.snapshot([pool.job(1, 2)], busy(pool, cards[:6]), gpus=cards, groups=[group])
    told = why(snapshot, 1)
    assert told.message == ("Group a uses 6 of 6 cards, and this needs 2 cards. More is free by 09:00 UTC.")
    assert told.clears == "It clears when work of group a ends, or when its limit is raised."
    held = busy(pool, cards[:1], memory_mib=48 * 1024)
    told = why(pool.snapshot([pool.job(1, memory_mib=32 * 1024)], held, gpus=cards, groups=[group]), 1)
    assert told.message.startswith(
        "Group a uses 48 GiB of 64 GiB of memory, and this needs 32 GiB of memory."
    )


@pytest.mark.parametrize(
    ("limits", "work", "message"),
    [
        (
            UserLimits(gpu_milli=1500),
            {},
            "The limit of ann in a is 1.5 cards: 1 held, and this needs 1 card.",
        ),
        (UserLimits(running_jobs=1), {}, "The limit of ann in a is 1 job at once: 1 running."),
        (UserLimits(), {"priority": "high"}, "Your limit is 1 job of priority high at once: 1 running."),
    ],
)
def test_user_limits(pool, limits, work, message):
    cards = pool.gpus(4)
    holder = busy(pool, cards[:1], **work)
    snapshot = pool.snapshot([pool.job(1, **work)], holder, gpus=cards, groups=[pool.group("a", user=limits)])
    told = why(snapshot, 1)
    assert told.message == message + " More is free by 09:00 UTC."
    assert told.clears == "It clears when one of your own ends, or is ended by you."


def test_sessions_of_a_user(pool):
    cards = pool.gpus(4)
    holder = pool.lease(pool.session(9, gpu_mib=4096), cards[:1], NOW + HOUR)
    groups = [pool.group("a", user=UserLimits(sessions=1))]
    told = why(pool.snapshot([pool.session(1, gpu_mib=4096)], [holder], gpus=cards, groups=groups), 1)
    assert told.message.startswith("The limit of ann in a is 1 session at once: 1 held.")


def test_slots_name_the_host(pool):
    cards = pool.gpus(4)
    settings = Settings(slots=1, host="lab7")
    told = why(pool.snapshot([pool.job(1)], busy(pool, cards[:1]), gpus=cards, settings=settings), 1)
    assert told.message == ("Host lab7 runs 1 job, as many at once as it can (1). More is free by 09:00 UTC.")


def test_windows_and_back_off(pool):
    tomorrow = NOW + 30 * HOUR
    windows = {"night": ((tomorrow, tomorrow + HOUR),), "never": ()}
    waiting = [
        pool.job(1, window="night"),
        pool.job(2, window="never"),
        pool.job(3, not_before=NOW + 60),
    ]
    snapshot = pool.snapshot(waiting, windows=windows)
    assert why(snapshot, 1).message == "Waits for window night, which opens at 14:00 UTC on 16 Jan."
    assert why(snapshot, 2).message == "Waits for window never, which does not open again."
    assert why(snapshot, 3).message == "Waits until 08:01 UTC before it is tried again."


def test_what_takes_no_part(pool):
    waiting = [pool.job(1, held="by ann"), pool.job(2, invalid="The script is gone."), pool.job(3, 5)]
    snapshot = pool.snapshot(waiting)
    assert why(snapshot, 1).message == "Held: by ann."
    assert why(snapshot, 1).clears == "Release it to put it back in the queue."
    assert why(snapshot, 2).message == "Cannot run as it is: The script is gone."
    assert why(snapshot, 3).message == "5 cards of one kind are more than there are: 4."
    assert why(snapshot, 3).clears == "Ask for at most 4."


def test_unavailable(pool):
    cards = pool.gpus(2)
    drained = (replace(cards[0], available=False, unavailable_because="drained by root"), cards[1])
    told = why(pool.snapshot([pool.job(1, 2)], gpus=drained), 1)
    assert told.message == "1 of the 2 cards that could run this are not available now (drained by root)."


def test_every_reason_that_is_given_has_sentences(pool):
    given = {
        Reason.HELD,
        Reason.INVALID,
        Reason.NO_SUCH_GPU,
        Reason.EXCEEDS_LIMIT,
        Reason.OUTSIDE_WINDOW,
        Reason.USER_LIMIT,
        Reason.BACK_OFF,
        Reason.UNAVAILABLE,
        Reason.GROUP_QUOTA,
        Reason.PRIORITY,
        Reason.RESOURCES,
    }
    later = {Reason.DEPENDENCY, Reason.ARRAY_LIMIT, Reason.BUDGET, Reason.RECLAIMING}
    assert given | later == set(Reason)


def test_numbers_as_people_read_them():
    assert [decimal(n) for n in (6000, 125, 1500, -250, 0)] == ["6", "0.125", "1.5", "-0.25", "0"]
    assert size_text(4096) == "4 GiB"
    assert size_text(4097) == "4097 MiB"
    assert [duration_text(s) for s in (0, 45, 5400, 259200)] == ["0s", "45s", "1h30m", "3d"]
    assert amount_text("gpu_milli.h200", 2000) == "2 h200 cards"
    assert amount_text("cpus_milli", 1000) == "1 CPU core"
    assert time_text(NOW, NOW) == "08:00 UTC"
    assert time_text(NOW + 24 * HOUR, NOW) == "08:00 UTC on 16 Jan"


def test_times_are_those_of_the_sites_clocks(pool):
    shanghai = ZoneInfo("Asia/Shanghai")
    assert time_text(NOW, NOW, shanghai) == "16:00 CST"
    assert time_text(NOW + 8 * HOUR, NOW, shanghai) == "00:00 CST on 16 Jan"  # the same day in UTC
    cards = pool.gpus(2)
    snapshot = pool.snapshot(
        [pool.job(1, 2)], busy(pool, cards, user="bob"), gpus=cards, settings=Settings(zone=shanghai)
    )
    told = why(snapshot, 1)
    assert told.message.endswith("the next frees at 17:00 CST.")


def test_work_that_comes_after_other_work(pool):
    holder = pool.lease(pool.session(7), pool.gpus(1), NOW + HOUR)
    snapshot = pool.snapshot([pool.session(8, after=(7,)), pool.job(9, after=(7, 8))], [holder])
    told = why(snapshot, 8)
    assert (told.message, told.clears) == (
        "Waits for session 7 to end first.",
        "It clears by itself when session 7 has ended.",
    )
    found = plan(snapshot, NOW)
    assert (found.starts, found.promises) == ((), ())
    assert found.verdicts[9].reason is Reason.DEPENDENCY
    assert found.verdicts[9].expected_start is None
    assert fill(snapshot, NOW).starts == ()


class TestWhatGroupsOwe:
    """Two groups of two cards each; times are from 08:00 UTC."""

    def told(self, pool, work, leases, groups=None, **more):
        groups = groups or [pool.group("a", 2), pool.group("b", 2)]
        return why(pool.snapshot([work], leases, gpus=pool.gpus(4), groups=groups, **more), work.id)

    def test_sessions_stay_inside_quota(self, pool):
        holders = [
            pool.lease(pool.session(9), pool.gpus(4)[:1], NOW + HOUR),
            pool.lease(pool.job(8), pool.gpus(4)[1:2], NOW + 6 * HOUR),
        ]
        told = self.told(pool, pool.session(1), holders)
        assert told.message == (
            "Sessions of group a, with its long jobs that cannot be stopped, hold 2 of 2 cards of its quota, "
            "and this needs 1 card. More is free by 09:00 UTC."
        )
        assert told.clears == "It clears when one of them ends, or when the quota of group a is raised."

    def test_a_long_job_that_cannot_be_stopped_borrows_nothing(self, pool):
        holders = busy(pool, pool.gpus(4)[:2], resumable=True)
        told = self.told(pool, pool.job(1, limit=5 * HOUR), holders)
        assert told.message == (
            "Group a uses 2 of 2 cards of its quota, and this needs 1 card. More is free by 09:00 UTC. "
            "A long job that cannot be stopped borrows nothing."
        )
        assert told.clears == (
            "It clears when work of group a ends; resumable, or with a shorter time limit, it could borrow."
        )

    def test_all_that_is_lent_is_in_use(self, pool):
        groups = [pool.group("a", 2), pool.group("b", 2, lend=0)]
        told = self.told(pool, pool.job(1), busy(pool, pool.gpus(4)[:2]), groups)
        assert told.message == (
            "All that groups lend is in use: 2 of 2 cards, and this needs 1 card. More is free by 09:00 UTC."
        )

    def test_the_limit_of_a_group_above(self, pool):
        groups = [pool.group("top", 1, limit=2), pool.group("a", 1, parent="top"), pool.group("b", 2)]
        told = self.told(pool, pool.job(1), busy(pool, pool.gpus(4)[:2]), groups)
        assert told.message == (
            "Group top uses 2 of 2 cards, and this needs 1 card. More is free by 09:00 UTC."
        )

    def test_those_above_quota_hold_what_is_owed(self, pool):
        young = [
            replace(lease, start=NOW - 60, end=NOW + 9 * HOUR, resumable=True, grace=120)
            for lease in busy(pool, pool.gpus(4), group="b")
        ]
        told = self.told(pool, pool.job(1), young)
        assert told.message == (
            "Inside quota, but jobs 90, 91, 92 and 1 more of b hold 4 cards above quota, "
            "until 08:11 UTC at the latest."
        )
        assert told.clears == "It clears when they end or are asked to stop."

    def test_who_was_asked_is_named(self, pool):
        old = [
            replace(lease, start=NOW - HOUR, end=NOW + 9 * HOUR, resumable=True, grace=120)
            for lease in busy(pool, pool.gpus(4), group="b")
        ]
        told = self.told(pool, pool.job(1), old)
        assert told.message == "Waits for job 93 of b, asked to stop and gone by 08:02 UTC."
        assert told.clears == "It clears by itself, at 08:02 UTC at the latest."
        asked = [*old[:3], replace(old[3], asked=NOW - 60)]
        told = self.told(pool, pool.job(1), asked)
        assert told.message == "Waits for job 93 of b, asked to stop and gone by 08:01 UTC."

    def test_what_is_owed_once_is_said_to_one(self, pool):
        young = [
            replace(lease, start=NOW - 60, resumable=True, grace=120)
            for lease in busy(pool, pool.gpus(4)[:3], group="b")
        ]
        held = busy(pool, pool.gpus(4)[3:], id_=99, group="c")
        waiting = [pool.job(1, 3), pool.job(2, 1)]
        groups = [pool.group("a", 4), pool.group("b", 0), pool.group("c", 1)]
        snapshot = pool.snapshot(waiting, [*young, *held], gpus=pool.gpus(4), groups=groups)
        reasons = {id_: verdict.reason for id_, verdict in plan(snapshot, NOW).verdicts.items()}
        assert reasons == {1: Reason.RECLAIMING, 2: Reason.PRIORITY}

    def test_a_budget(self, pool):
        budgets = {"a": Budget(2000 * 3600 * 1000, 1990 * 3600 * 1000, (NOW + 40 * HOUR,))}
        told = self.told(pool, pool.job(1, 2, limit=6 * HOUR), [], budgets=budgets)
        assert told.message == (
            "Group a has used or set apart 1990 of 2000 GPU hours of its budget, and this needs up to 12. "
            "A new period begins at 00:00 UTC on 17 Jan."
        )

    def test_an_array(self, pool):
        holder = replace(busy(pool, pool.gpus(4)[:1])[0], array=70, array_limit=1)
        told = self.told(pool, pool.job(1, array=70, array_limit=1), [holder])
        assert told.message == (
            "Array 70 runs 1 of the 1 tasks that may run at once. More is free by 09:00 UTC."
        )
