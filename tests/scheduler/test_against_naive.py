"""What `plan` decides is what the rules say, checked by brute force on pools of a few cards."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jupyter_gpupool.scheduler import shortlist
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


def draw_site(draw):
    """Draw a small pool, its groups, and how many promises there are."""
    return {
        "shape": draw.choice([(1,), (2,), (2, 2), (3, 1), (4,), (1, 2, 1), (3, 3, 2)]),
        "new": draw.random() < 0.5,
        "cpus": draw.choice([8, 16]),
        "groups": [draw_group(draw) for _ in "abc"],
        "nested": draw.random() < 0.5,
        "slots": draw.choice([None, None, None, 3]),
        "promises": draw.choice([(0, 0), (2, 1), (5, 3), (9, 9)]),
        "usage": [draw.randint(0, 8) for _ in range(4)],
        "budget": draw.choice([None, None, ("a", 40), ("b", 120)]),
    }


def draw_group(draw):
    maybe = (None, None, None, 0, 1, 2, 3, 4)
    return {
        "owed": draw.randint(0, 4),
        "cpus": draw.choice([None, None, 4, 8]),
        "typed": draw.choice([None, None, None, 1]),
        "over": draw.choice(maybe),
        "lend": draw.choice(maybe),
        "weight": draw.randint(0, 2),
        "user_gpus": draw.choice(maybe),
        "running_jobs": draw.choice(maybe),
    }


def draw_work(draw):
    sizes = [{"gpus": many} for many in (0, 1, 1, 2, 2, 3, 4)]
    sizes += [{"gpu_mib": many * GIB} for many in (4, 11, 20, 32)]
    sizes += [{"share": (1, 8)}, {"share": (1, 2)}]
    return {
        "size": draw.choice(sizes),
        "limit": draw.randint(1, 30),
        "user": draw.choice(["ann", "bob"]),
        "group": draw.choice("abc"),
        "priority": draw.choice(["low", "normal", "normal", "high", "urgent"]),
        "cpus_milli": draw.choice([0, 1000, 1000, 5000]),
        "memory_mib": draw.choice([0, GIB, 40 * GIB]),
        "kind": draw.choice(["job", "job", "job", "session"]),
        "window": draw.choice([None, None, None, "night"]),
        "held": draw.choice(["", "", "", "", "", "", "by ann"]),
        "rest": draw.choice([0, 0, 0, 7]),
        "gpu_types": draw.choice([(), (), (), ("new",)]),
        "age": draw.choice([0, 0, 7 * 86400]),
        "array": draw.choice([None, None, 1]),
        "resumable": draw.random() < 0.5,
    }


def simple(site, works):
    """Leave out most of what bars a start but the cards and the quota of groups, so that many compete."""
    site.update(new=False, slots=None)
    for group in site["groups"]:
        group.update(cpus=None, typed=None, user_gpus=None, running_jobs=None)
    for work in works:
        work.update(held="", rest=0, gpu_types=(), array=None, memory_mib=0)


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
    owed = one["owed"] if name == "c" else 12
    limit = None if one["over"] is None else {"gpu_milli": 1000 * (owed + one["over"])}
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


def test_two_passes_agree_with_the_rules(pool, monkeypatch):
    """Draw 600 pools, each with work that comes before the first pass, and before the second one.

    A fast pass tries all of so few; in two of four pools it looks at them first, as at many.
    """
    for seed in range(600):
        draw = Random(seed)
        monkeypatch.setattr(shortlist, "FEW", 8 if seed % 4 < 2 else 0)
        site, after = draw_site(draw), draw.randint(0, 20)
        first = [draw_work(draw) for _ in range(draw.randint(1, 7))]
        later = [draw_work(draw) for _ in range(draw.randint(0, 5))]
        if seed % 2:
            simple(site, [*first, *later])
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


PLAIN_SITE = {
    "shape": (2,),
    "new": False,
    "cpus": 16,
    "nested": False,
    "slots": None,
    "promises": (9, 9),
    "usage": [0, 0, 0, 0],
    "budget": None,
}
PLAIN_GROUP = {
    "owed": 0,
    "cpus": None,
    "typed": None,
    "over": None,
    "lend": None,
    "weight": 1,
    "user_gpus": None,
    "running_jobs": None,
}
PLAIN_WORK = {
    "size": {"gpus": 1},
    "limit": 1,
    "user": "ann",
    "group": "a",
    "priority": "normal",
    "cpus_milli": 0,
    "memory_mib": 0,
    "kind": "job",
    "window": None,
    "held": "",
    "rest": 0,
    "gpu_types": (),
    "age": 0,
    "array": None,
    "resumable": False,
}
TWO, THREE = {"size": {"gpus": 2}}, {"size": {"gpus": 3}}
FOUND = {
    "a promise that is due is no use of its group": (
        {"usage": [0, 6, 7, 1]},
        {"a": {"owed": 3}, "b": {"owed": 1}},
        [{"group": "b"}, TWO],
        [{}, {}],
        1,
    ),
    "nor is one of a group below": (
        {"shape": (4,), "nested": True, "usage": [3, 7, 5, 3]},
        {"a": {"owed": 2}, "b": {"owed": 1}},
        [{"group": "b", "limit": 13}, {"group": "b"}],
        [{}, TWO],
        1,
    ),
    "a higher class goes before a promise that is yet to be repaired": (
        {"shape": (1, 2, 1)},
        {},
        [{}, {"limit": 2}, THREE],
        [{}, {"limit": 2, "priority": "urgent"}],
        1,
    ),
    "and before one whose window has closed": (
        {"shape": (4,)},
        {"a": {"owed": 3}},
        [{}, {}, {**THREE, "window": "night"}],
        [{}, {"limit": 10, "kind": "session"}, {"limit": 10, "priority": "high"}],
        6,
    ),
    "what no period's budget pays for beside what starts first waits for the one after": (
        {"budget": ("a", 40)},
        {},
        [{}],
        [
            {"limit": 8, "priority": "high"},
            {"limit": 11, "size": {"gpus": 2}},
            {"limit": 11, "priority": "high"},
        ],
        0,
    ),
    "a higher class goes before a promise that its group's budget pays for": (
        {"shape": (4,), "promises": (2, 1), "budget": ("a", 40)},
        {"a": {"owed": 2}},
        [
            {"limit": 13},
            {**TWO, "limit": 18, "priority": "low", "kind": "session"},
            {"limit": 5, "priority": "urgent"},
        ],
        [],
        1,
    ),
    "a job that borrows may start once one has started that may not": (
        {"shape": (1, 2, 1), "promises": (2, 1)},
        {"c": {"owed": 2}},
        [{}],
        [{"limit": 13, "group": "c", "window": "night"}, {**TWO, "limit": 6, "group": "c"}],
        10,
    ),
    "a higher class moves what is promised to a long job, for that cause": (
        {"promises": (2, 1)},
        {"b": {"owed": 1}},
        [{"limit": 13, "group": "b"}, {"group": "b"}],
        [
            {"group": "b", "priority": "high", "window": "night"},
            {"group": "b", "priority": "urgent"},
        ],
        2,
    ),
    "what one card's limit bars and another's budget starts when either has room": (
        {"shape": (1, 2, 1), "new": True, "nested": True, "budget": ("a", 40)},
        {"b": {"owed": 2, "typed": 1}},
        [{"limit": 26, "group": "b", "kind": "session"}],
        [{"limit": 6, "group": "b", "priority": "high", "kind": "session"}],
        0,
    ),
    "what may not borrow and is to start now guards its quota until it has started": (
        {"shape": (3, 1)},
        {"a": {"owed": 1}, "b": {"owed": 1}, "c": {"owed": 4}},
        [
            {"limit": 20},
            {"limit": 16, "group": "c"},
            {"group": "b", "priority": "urgent"},
            {"size": {"gpus": 3}, "priority": "urgent"},
            {"rest": 7},
        ],
        [],
        16,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_pools_on_which_they_once_disagreed(pool, name):
    site, groups, first, later, after = FOUND[name]
    site = {**PLAIN_SITE, **site, "groups": [{**PLAIN_GROUP, **groups.get(one, {})} for one in "abc"]}
    works = [[{**PLAIN_WORK, **one} for one in some] for some in (first, later)]
    two_passes(pool, site, *works, after)
