import pytest

from jupyter_gpupool.scheduler.model import Group, Quota, Request
from jupyter_gpupool.scheduler.quota import (
    ROOT,
    QuotaTree,
    amount,
    card_need,
    effective,
    gpu_charge,
    held,
)

GPU = "gpu_milli"


def group(name, quota, *, parent="pool", limit=None, lend=None):
    def named(value):
        return None if value is None else {GPU: value}

    return Group(name, parent, Quota({GPU: quota}, named(limit), named(lend)))


def tree(*groups, total=0):
    return QuotaTree({each.name: each for each in groups}, GPU, total)


def test_the_worked_value_of_borrowed_quota():
    pool = tree(group("A", 8, lend=5), group("B", 8), total=16)
    assert pool.local("A") == 3
    assert pool.subtree(ROOT) == 13
    assert pool.usage({"B": 12})[ROOT] == 12
    assert pool.potential("A") == 16
    assert pool.potential("B") == 13


def test_the_root_owns_what_no_quota_names_and_never_less_than_nothing():
    assert tree(group("A", 8), total=10).subtree(ROOT) == 10
    assert tree(group("A", 8, lend=0), total=10).subtree(ROOT) == 2
    assert tree(group("A", 8, lend=0), total=5).subtree(ROOT) == 0


def test_a_limit_caps_what_a_group_may_ever_have():
    pool = tree(group("A", 4, limit=6), group("B", 4), total=8)
    assert pool.potential("A") == 6
    assert pool.potential("B") == 8
    below = tree(group("P", 2, limit=5), group("C", 2, parent="P"), group("D", 4), total=8)
    assert below.potential("C") == 5


def test_usage_above_what_is_kept_counts_for_the_parent():
    pool = tree(group("P", 2), group("C", 4, parent="P", lend=1), group("D", 2, parent="P"), total=8)
    assert pool.subtree("P") == 2 + 1 + 2
    used = pool.usage({"C": 4, "D": 1})
    assert used["P"] == 1 + 1


def test_the_root_matters_only_where_something_is_kept_from_it():
    assert tree(group("A", 4), group("B", 4, limit=6), total=8).upward("A") == ["A"]
    assert tree(group("A", 4, lend=1), group("B", 4), total=8).upward("B") == ["B", ROOT]


def test_a_group_that_does_not_name_a_resource_counts_in_the_nearest_above_that_does():
    above = Group("P", "pool", Quota({GPU: 4, "cpus_milli": 40}))
    middle = Group("Q", "P", Quota({GPU: 2}))
    alone = Group("R", "pool", Quota({GPU: 2}, limit={"cpus_milli": 9}))
    none = Group("S", "pool", Quota({GPU: 2}))
    cpus = QuotaTree({each.name: each for each in (above, middle, alone, none)}, "cpus_milli", 64)
    assert [cpus.home(name) for name in "PQRS"] == ["P", "P", "R", ROOT]
    assert cpus.usage({"Q": 7, "S": 3})["P"] == 7
    assert cpus.upward(cpus.home("S")) == []


def test_a_group_that_names_no_cards_is_owed_none_and_may_borrow_them():
    groups = effective({"A": group("A", 4), "C": Group("C", "pool", Quota({"cpus_milli": 8}))})
    assert groups["C"].quota.quota == {GPU: 0, "cpus_milli": 8}
    pool = QuotaTree(groups, GPU, 10)
    assert pool.subtree("C") == 0
    assert pool.potential("C") == 10


@pytest.mark.parametrize(
    ("request_", "need", "milli"),
    [
        (Request(gpus=2), 32768, 2000),
        (Request(gpu_mib=4096), 4096, 125),
        (Request(gpu_mib=4097), 4097, 126),
        (Request(share=(1, 8)), 4096, 125),
        (Request(share=(1, 3)), 10922, 333),
        (Request(gpu_mib=32768), 32768, 1000),
    ],
)
def test_what_is_taken_and_charged_of_a_card(request_, need, milli):
    assert card_need(request_, 32768) == need
    assert gpu_charge(request_, 32768) == milli


def test_a_type_is_counted_only_on_its_cards():
    request = Request(gpus=2)
    assert amount("gpu_milli.h200", request, 2000, "NVIDIA H200") == 2000
    assert amount("gpu_milli.h200", request, 2000, "NVIDIA A100-SXM4-80GB") == 0
    assert amount("gpu_milli", request, 2000, "NVIDIA A100-SXM4-80GB") == 2000


def test_what_groups_hold(pool):
    cards = pool.gpus(4)
    leases = [
        pool.lease(pool.job(1, 2), cards[:2], 60),
        pool.lease(pool.job(2, group="b", gpu_mib=8192), cards[2:3], 60),
    ]
    models = {card.uuid: card.model for card in cards}
    assert held(leases, models, GPU) == {"a": 2000, "b": 250}
    assert held(leases, models, "cpus_milli") == {"a": 1000, "b": 1000}
    assert held(leases, models, "gpu_milli.sim") == {"a": 2000, "b": 250}
