"""What `plan` decides is what the rules say, checked by brute force on pools of a few cards."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpupool.scheduler.model import (
    Budget,
    Group,
    Node,
    PriorityClass,
    Quota,
    Reason,
    Settings,
    Usage,
    UserLimits,
)
from jupyter_gpupool.scheduler.plan import fill, plan_with_places
from tests.scheduler.naive import Naive

GIB = 1024
NANO = 10**9
CLASSES = {
    "low": PriorityClass("low", -100, 500),
    "normal": PriorityClass("normal", 0),
    "high": PriorityClass("high", 100, 2000, running_jobs=1),
    "urgent": PriorityClass("urgent", 1000, 4000, groups=frozenset({"a", "b"}), preempts=True),
}
WINDOWS = {"night": ((5, 12), (25, 60), (400, 500))}
NOW = 10
ROOM = (Reason.RECLAIMING, Reason.PRIORITY, Reason.RESOURCES)

maybe = st.one_of(st.none(), st.none(), st.integers(0, 4))
groups = st.lists(
    st.fixed_dictionaries(
        {
            "owed": st.integers(0, 4),
            "cpus": st.sampled_from([None, None, 4, 8]),
            "typed": st.sampled_from([None, None, None, 1]),
            "over": maybe,
            "lend": maybe,
            "weight": st.integers(0, 2),
            "user_gpus": maybe,
            "running_jobs": maybe,
        }
    ),
    min_size=3,
    max_size=3,
)
sizes = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(0, 4)}),
    st.fixed_dictionaries({"gpus": st.sampled_from([1, 2])}),
    st.fixed_dictionaries({"gpu_mib": st.sampled_from([4 * GIB, 11 * GIB, 20 * GIB, 32 * GIB])}),
    st.fixed_dictionaries({"share": st.sampled_from([(1, 8), (1, 2)])}),
)
works = st.fixed_dictionaries(
    {
        "size": sizes,
        "limit": st.integers(1, 30),
        "user": st.sampled_from(["ann", "bob"]),
        "group": st.sampled_from(["a", "b", "c"]),
        "priority": st.sampled_from(["low", "normal", "normal", "high", "urgent"]),
        "cpus_milli": st.sampled_from([0, 1000, 1000, 5000]),
        "memory_mib": st.sampled_from([0, GIB, 40 * GIB]),
        "kind": st.sampled_from(["job", "job", "job", "session"]),
        "window": st.sampled_from([None, None, None, "night"]),
        "held": st.sampled_from(["", "", "", "", "", "", "by ann"]),
        "rest": st.sampled_from([0, 0, 0, 7]),
        "gpu_types": st.sampled_from([(), (), (), ("new",)]),
        "age": st.sampled_from([0, 0, 7 * 86400]),
        "array": st.sampled_from([None, None, 1]),
        "resumable": st.booleans(),
    }
)
pools = st.fixed_dictionaries(
    {
        "shape": st.sampled_from([(1,), (2,), (2, 2), (3, 1), (4,), (1, 2, 1), (3, 3, 2)]),
        "new": st.booleans(),
        "cpus": st.sampled_from([8, 16]),
        "groups": groups,
        "nested": st.booleans(),
        "slots": st.sampled_from([None, None, None, 3]),
        "promises": st.sampled_from([(0, 0), (2, 1), (5, 3), (9, 9)]),
        "usage": st.lists(st.integers(0, 8), min_size=4, max_size=4),
        "budget": st.sampled_from([None, None, ("a", 40), ("b", 120)]),
    }
)


def build(pool, site, held, first):
    cards = tuple(
        gpu
        for number, many in enumerate(site["shape"], 1)
        for gpu in pool.gpus(many, first=number, model="NEW" if site["new"] and number == 2 else "OLD")
    )
    names = list(dict.fromkeys(gpu.node for gpu in cards))
    named = [
        _group(name, "a" if site["nested"] and name == "b" else "pool", one)
        for name, one in zip("abc", site["groups"], strict=True)
    ]
    u = [many * NANO for many in site["usage"]]
    budget = site["budget"]
    snapshot = pool.snapshot(
        gpus=cards,
        groups=named,
        nodes=[Node(name, 1000 * site["cpus"], 64 * GIB) for name in names],
        priorities=CLASSES,
        windows=WINDOWS,
        usage=Usage({"a": u[0], "b": u[1]}, {("a", "ann"): u[2], ("b", "bob"): u[3]}),
        settings=Settings(
            *site["promises"], min_run_time=10**6, borrow_max_time=12, slots=site["slots"], host="here"
        ),
        budgets={budget[0]: Budget(1000 * budget[1], 3000, (NOW + 25, NOW + 90))} if budget else {},
    )
    return replace(snapshot, waiting=in_order(work(pool, n, one, NOW) for n, one in enumerate(first, 1)))


def in_order(works):
    return tuple(sorted(works, key=lambda one: (one.submitted, one.id)))


def _group(name, parent, one):
    quota = {"gpu_milli": 1000 * one["owed"]}
    if one["cpus"]:
        quota["cpus_milli"] = 1000 * one["cpus"]
    if one["typed"]:
        quota["gpu_milli.new"] = 1000 * one["typed"]
    limit = None if one["over"] is None else {"gpu_milli": 12000 + 1000 * one["over"] - 10000 * (name == "c")}
    lend = None if one["lend"] is None else {"gpu_milli": 1000 * one["lend"]}
    most = None if one["user_gpus"] is None else 1000 * one["user_gpus"]
    user = UserLimits(gpu_milli=most, running_jobs=one["running_jobs"], sessions=2, job_time=28)
    return Group(name, parent, Quota(quota, limit, lend), one["weight"], user)


def work(pool, number, one, now, resumable=False):
    is_job = one["kind"] == "job"
    return pool.job(
        number,
        kind=one["kind"],
        limit=one["limit"],
        user=one["user"],
        group=one["group"],
        priority=one["priority"],
        cpus_milli=one["cpus_milli"],
        memory_mib=one["memory_mib"],
        window=one["window"] if is_job else None,
        held=one["held"],
        not_before=now + one["rest"] if one["rest"] else 0,
        gpu_types=one["gpu_types"],
        age=one["age"],
        array=one["array"] if is_job else None,
        array_limit=1 if is_job and one["array"] else None,
        resumable=resumable and is_job and one["resumable"],
        submitted=now - number % 3,
        **one["size"],
    )


def check(snapshot, now):
    """Compare a plan with the one by brute force: starts, promises, estimates, reasons."""
    decided, places = plan_with_places(snapshot, now)
    wishes = {(start.work, now): start.placement for start in decided.starts}
    wishes |= {(one.work, one.start): one.placement for one in decided.promises}
    expected = {id_: verdict.expected_start for id_, verdict in decided.verdicts.items()}
    wishes |= {(id_, expected[id_]): placement for id_, placement in places.items() if id_ in expected}
    naive = Naive(snapshot, now, wishes)
    assert {start.work: start.borrowed for start in decided.starts} == naive.starts
    assert {one.work: one.start for one in decided.promises} == {
        id_: one.start for id_, one in naive.promises.items()
    }
    assert decided.stops == ()
    quick = fill(snapshot, now).starts
    assert quick == decided.starts[: len(quick)]
    promised = {one.work: one.start for one in decided.promises}
    assert {id_: when for id_, when in expected.items() if when is not None} == {
        **naive.estimates,
        **promised,
    }
    for work in snapshot.waiting:
        if work.id not in naive.starts:
            reason = decided.verdicts[work.id].reason
            told = naive.reason(work)
            assert reason is told if told else reason in ROOM, (work.id, reason, told)
    return decided


@settings(max_examples=300, deadline=None)
@given(pools, st.lists(works, min_size=1, max_size=7), st.lists(works, max_size=5), st.integers(0, 20))
def test_two_passes_agree_with_the_rules(pool, site, first, later, after):
    two_passes(pool, site, first, later, after)


def two_passes(pool, site, first, later, after):
    """Plan twice, the second time with what has ended, what was promised and what came since."""
    snapshot = build(pool, site, (), first)
    decided = check(snapshot, NOW)
    settled = pool.after(snapshot, decided, NOW)
    now = NOW + after
    more = tuple(work(pool, n, one, now, True) for n, one in enumerate(later, 20))
    kept = tuple(lease for lease in settled.leases if lease.end + lease.id % 2 > now)
    check(replace(settled, leases=kept, waiting=in_order((*settled.waiting, *more))), now)
