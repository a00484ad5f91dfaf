from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.admission import dry_run, refusal
from jupyter_gpupool.scheduler.model import Budget, Reason, UserLimits
from jupyter_gpupool.scheduler.plan import plan


def refused(pool, work, **more):
    more.setdefault("gpus", pool.gpus(4, nodes=2))
    return refusal(work, pool.snapshot(**more))


def test_what_can_run_is_not_refused(pool):
    for work in (pool.job(1, 4), pool.job(1, 8), pool.job(1, 0), pool.session(1, share=(1, 8))):
        assert refused(pool, work) is None


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        (9, "9 cards of one kind are more than there are: 8."),
        (6, "More than 4 cards are given as whole nodes of 4; 6 are not."),
    ],
)
def test_too_many_cards(pool, gpus, message):
    found = refused(pool, pool.job(1, gpus))
    assert (found.code, found.message, found.used) == ("no_such_gpu", message, gpus)


@pytest.mark.parametrize(
    ("mib", "ok"), [(pool_mib := 32 * 1024, True), (pool_mib + 1, False), (pool_mib - 1, True)]
)
def test_more_than_a_card(pool, mib, ok):
    found = refused(pool, pool.job(1, gpu_mib=mib))
    assert (found is None) is ok
    if found:
        assert found.message == "32769 MiB is more than a card has: 32 GiB."
        assert (found.code, found.used, found.limit, found.unit) == ("exceeds_limit", 32769, 32768, "MiB")


def test_more_than_a_node(pool):
    found = refused(pool, pool.job(1, cpus_milli=64_001))
    assert found.message == "64.001 CPU cores are more than a node could give: 64 CPU cores."
    found = refused(pool, pool.job(1, memory_mib=513 * 1024))
    assert found.message == "513 GiB of memory is more than a node could give: 512 GiB."


def test_no_such_card_or_partition(pool):
    found = refused(pool, pool.job(1, gpu_types=("h100", "b200")))
    assert found.message == "There is no card of type h100 or b200 for jobs."
    assert found.hint == "The pool has: SIM."
    assert refused(pool, pool.job(1, partition="night")).message == "Partition night does not exist."
    kinds = {"training": ("job",)}
    assert refused(pool, pool.session(1, partition="training"), kinds=kinds).message == (
        "No partition of this pool is for sessions."
    )
    both = {"training": ("job",), "development": ("session",)}
    cards = pool.gpus(1) + pool.gpus(1, partition="development", first=2)
    found = refused(pool, pool.session(1, partition="training"), kinds=both, gpus=cards)
    assert found.message == "Partition training is not for sessions."
    assert found.hint == "Choose one of: development."


def test_more_than_the_group_could_ever_have(pool):
    found = refused(pool, pool.job(1, 4), groups=[pool.group("a", 1, limit=3)])
    assert found.message == "4 cards is more than group a could ever have: its limit is 3 cards."
    assert (found.code, found.used, found.limit, found.unit) == ("exceeds_limit", 4000, 3000, "gpu_milli")
    assert refused(pool, pool.job(1, 3), groups=[pool.group("a", 1, limit=3)]) is None
    assert refused(pool, pool.job(1), groups=[pool.group("a", 0, limit=0)]).hint == "Ask your administrator."


HOUR = 3600


def test_what_may_not_borrow_is_bounded_by_the_quota(pool):
    """A session, and a job that is long and cannot be stopped: 2 cards are owed, 6 could be borrowed."""
    groups = [pool.group("a", 2), pool.group("b", 6)]
    assert refused(pool, pool.job(1, 4, limit=4 * HOUR), groups=groups) is None
    assert refused(pool, pool.job(1, 4, limit=9 * HOUR, resumable=True), groups=groups) is None
    found = refused(pool, pool.job(1, 4, limit=4 * HOUR + 1), groups=groups)
    assert found.message == "4 cards is more than group a is owed, 2 cards, and a long job borrows nothing."
    assert found.hint == "Ask for at most 2 cards; or let it be resumable, or shorter."
    found = refused(pool, pool.session(1, 4), groups=groups)
    assert found.message == "4 cards is more than a session of group a could ever have: its quota is 2 cards."
    assert (found.used, found.limit) == (4000, 2000)
    assert refused(pool, pool.session(1, 2), groups=groups) is None


def test_more_than_others_lend(pool):
    groups = [pool.group("a", 3), pool.group("b", 5, lend=1)]
    assert refused(pool, pool.job(1, 4), groups=groups) is None
    found = refused(pool, pool.job(1, 8), groups=groups)
    assert found.message == "8 cards is more than all groups lend together with what group a keeps: 4 cards."
    keeps = [pool.group("a", 3, lend=1), pool.group("b", 5, lend=1)]
    assert refused(pool, pool.job(1, 8), groups=keeps).limit == 2000 + 2000


def test_more_than_a_whole_budget(pool):
    budgets = {"a": Budget(10 * HOUR * 1000, 0, (99 * HOUR,))}
    assert refused(pool, pool.job(1, 2, limit=5 * HOUR, resumable=True), budgets=budgets) is None
    found = refused(pool, pool.job(1, 2, limit=6 * HOUR, resumable=True), budgets=budgets)
    assert found.message == "12 GPU hours are more than group a has for a whole period: 10."


def test_more_than_the_user_may_hold(pool):
    groups = [pool.group("a", user=UserLimits(gpu_milli=2000, job_time=3600, session_time=60))]
    assert (
        refused(pool, pool.job(1, 3), groups=groups).message
        == "3 cards is more than ann in a may hold at once: 2 cards."
    )
    found = refused(pool, pool.job(1, limit=3601), groups=groups)
    assert found.message == "A time limit of 1h1s is more than a job in a may have: 1h."
    assert found.hint == "Ask for --time 1h or less."
    assert refused(pool, pool.job(1, limit=3600), groups=groups) is None
    assert refused(pool, pool.session(1, limit=61), groups=groups) is not None
    nothing = [pool.group("a", user=UserLimits(running_jobs=0))]
    assert refused(pool, pool.job(1), groups=nothing).message == (
        "Even one job is more than ann in a may have at once: 0."
    )


def test_priorities(pool):
    assert refused(pool, pool.job(1, priority="urgent")) is None
    groups = [pool.group("a"), pool.group("b")]
    found = refused(pool, pool.job(1, priority="urgent", group="b"), groups=groups)
    assert found.message == "Priority urgent is for a; this is of group b."
    assert refused(pool, pool.job(1, priority="top")).message == "There is no priority top."


def test_a_full_queue(pool):
    groups = [pool.group("a", user=UserLimits(queued_jobs=2))]
    two = [pool.job(2), pool.job(3)]
    assert refused(pool, pool.job(1), groups=groups, waiting=two[:1]) is None
    found = refused(pool, pool.job(1), groups=groups, waiting=two)
    assert found.message == "ann has 2 jobs queued in a; the limit is 2."
    assert refused(pool, pool.job(1, user="bob"), groups=groups, waiting=two) is None
    assert refused(pool, two[0], groups=groups, waiting=two) is None


def test_drained_cards_are_no_reason_to_refuse(pool):
    drained = [replace(gpu, available=False) for gpu in pool.gpus(2)]
    assert refused(pool, pool.job(1, 2), gpus=drained) is None


def test_dry_run_changes_nothing_and_tells_where_and_when(pool):
    cards = pool.gpus(2)
    running = pool.lease(pool.job(9), cards[:1], 60)
    snapshot = pool.snapshot([], [running], gpus=cards)
    at_once = dry_run(snapshot, 0, pool.job(1))
    assert (at_once.start, at_once.verdict) == (0, None)
    assert at_once.placement.gpus[0].uuid == cards[1].uuid
    later = dry_run(snapshot, 0, pool.job(1, 2))
    assert later.start == 60
    assert later.verdict.reason is Reason.RESOURCES
    assert len(later.placement.gpus) == 2


def test_dry_run_of_an_estimate_names_a_place_too(pool):
    cards = pool.gpus(1)
    running = pool.lease(pool.job(9), cards, 60)
    waiting = [pool.job(n) for n in range(1, 13)]
    told = dry_run(pool.snapshot(waiting, [running], gpus=cards), 0, pool.job(20))
    assert told.verdict.promised is False
    assert told.start == 60 + 12 * 100
    assert told.placement.nodes == ("node1",)
    assert plan(pool.snapshot(waiting, [running], gpus=cards), 0).verdicts.keys() == set(range(1, 13))
