from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.policy.advice import warnings
from jupyter_gpupool.policy.builtin import builtin_policy
from jupyter_gpupool.policy.load import check_against, load_policy
from jupyter_gpupool.policy.membership import choose_group

DEMO = Path(__file__).parents[2] / "hub_config" / "demo" / "policy.yaml"


def test_everyone_may_use_the_whole_pool(card: type, host: type) -> None:
    cards = [card(f"node{n}", i) for n in (1, 2) for i in range(8)]
    hosts = [host(f"node{n}", 48_000, 480 * 1024) for n in (1, 2)]
    policy = load_policy(builtin_policy(cards, hosts))
    assert policy.groups["everyone"].quota.amounts() == {
        "gpu_milli": 16_000,
        "cpus_milli": 96_000,
        "memory_mib": 960 * 1024,
    }
    assert (policy.defaults.cpus_per_gpu, policy.defaults.memory_per_gpu) == (6000, 60 * 1024)
    (partition,) = policy.partitions.values()
    assert partition.kinds == ("session", "job")
    assert [s.share or s.gpus for s in partition.slices] == [(1, 8), (1, 4), (1, 2), 1, 0]
    assert all(policy.partition_of(c) == "all" for c in cards)
    assert choose_group(policy, "anyone") == "everyone"
    assert policy.inactive() == []


def test_a_machine_without_cards_gives_cpus_only(host: type) -> None:
    policy = load_policy(builtin_policy([], [host("here", 2000, 7975)]))
    assert policy.groups["everyone"].quota.amounts() == {
        "gpu_milli": 0,
        "cpus_milli": 2000,
        "memory_mib": 7975,
    }
    assert [s.gpus for s in policy.partitions["all"].slices] == [0]


@pytest.mark.parametrize(("memory", "shares"), [(2048, 3), (2047, 2), (511, 0)])
def test_only_slices_that_every_card_can_give_are_offered(
    card: type, host: type, memory: int, shares: int
) -> None:
    cards = [card("here", 0), card("here", 1, memory_mib=memory)]
    policy = load_policy(builtin_policy(cards, [host("here", 2000, 4096)]))
    assert sum(s.share is not None for s in policy.partitions["all"].slices) == shares


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(1, 256), st.integers(256, 300_000)), min_size=1, max_size=3
    ),
    st.integers(64, 200_000),
)
def test_it_is_valid_for_every_pool(
    card: type, host: type, nodes: list[tuple[int, int, int]], memory: int
) -> None:
    cards = [
        card(f"n{n}", i, memory_mib=memory) for n, (count, _, _) in enumerate(nodes) for i in range(count)
    ]
    hosts = [host(f"n{n}", cpus * 1000, mib) for n, (_, cpus, mib) in enumerate(nodes)]
    policy = load_policy(builtin_policy(cards, hosts))
    totals = {"gpu_milli": 1000 * len(cards), "memory_mib": sum(mib for _, _, mib in nodes)}
    assert check_against(policy, cards) == []
    assert warnings(policy, totals) == []


def test_the_demo_is_the_site_of_fifty_developers(card: type) -> None:
    policy = load_policy(DEMO.read_text())
    cards = [card(f"node{n}", i) for n in range(1, 5) for i in range(8)]
    assert list(policy.groups) == ["vision", "speech", "nlp", "robotics", "science"]
    members = [name for group in policy.groups.values() for name in group.members]
    assert len(members) == len(set(members)) == 50
    assert {len(group.members) for group in policy.groups.values()} == {10}
    for group in policy.groups.values():
        assert group.quota.amounts() == {"gpu_milli": 6000, "cpus_milli": 40_000}
    assert [policy.partition_of(c) for c in cards] == ["development"] * 16 + ["training"] * 16
    assert policy.partitions["development"].slices[0].share == (1, 8)
    assert choose_group(policy, "whoever") == "vision"
    assert check_against(policy, cards) == []
    assert warnings(policy, {"gpu_milli": 32_000, "memory_mib": 4 * 480 * 1024}, cards) == []


@pytest.mark.parametrize("module", ["units", "load", "calendar"])
def test_holidays_are_loaded_only_for_a_calendar_that_names_them(module: str) -> None:
    code = f"import sys, jupyter_gpupool.policy.{module}; sys.exit('holidays' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
