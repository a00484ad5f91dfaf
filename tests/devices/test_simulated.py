from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.devices.base import DevicesError, Pool
from jupyter_gpupool.devices.find import open_pool
from jupyter_gpupool.devices.simulated import SimulatedPool


def test_four_nodes_of_eight_cards():
    pool: Pool = open_pool("4x8x32GiB")
    assert pool.simulated
    assert [node.name for node in pool.nodes()] == ["node1", "node2", "node3", "node4"]
    assert {(node.cpus_milli, node.memory_mib) for node in pool.nodes()} == {(64_000, 480 * 1024)}
    cards = pool.cards()
    assert len({card.uuid for card in cards}) == 32
    assert all(card.memory_mib == 32 * 1024 and card.simulated for card in cards)
    assert (cards[9].uuid, cards[9].node, cards[9].index) == ("SIM-node2-1", "node2", 1)
    assert cards[0].link_group == cards[7].link_group != cards[8].link_group


def test_the_same_text_means_the_same_cards():
    assert SimulatedPool.parse("2x2x4096MiB").cards() == SimulatedPool.parse("2x2x4GiB").cards()


def test_nobody_is_on_a_card_that_does_not_exist():
    pool = SimulatedPool.parse("1x2x300MiB")
    assert pool.processes() == []
    assert pool.free_mib("SIM-node1-1") == 300
    assert pool.healthy() == {"SIM-node1-0": "", "SIM-node1-1": ""}
    with pytest.raises(KeyError):
        pool.free_mib("SIM-node1-2")


def test_it_says_that_it_is_simulated_and_that_jobs_are_not():
    said = SimulatedPool.parse("1x2x32GiB").describe()
    assert said.startswith("Simulated pool 1x2x32GiB: 1 node with 2 cards of 32GiB each.")
    assert "Jobs really run" in said


@given(st.integers(1, 50), st.integers(1, 50), st.integers(256, 10**6))
def test_a_pool_reads_back_what_it_writes(nodes, cards, mib):
    pool = SimulatedPool(nodes, cards, mib)
    assert SimulatedPool.parse(pool.spec) == pool


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write nodes x cards x memory"),
        ("4x8", "write nodes x cards x memory"),
        ("4x8x32", "with a unit"),
        ("4x8x32GB", "with a unit"),
        ("4x8x-1GiB", "write nodes x cards x memory"),
        ("4x8xNaN", "write nodes x cards x memory"),
        ("4×8×32GiB", "write nodes x cards x memory"),
        ("0x8x32GiB", "no card"),
        ("4x0x32GiB", "no card"),
        ("1x1x0GiB", "least slice is 256 MiB"),
        ("1x1x255MiB", "255 MiB"),
        ("1000x1000x1GiB", "1000000 cards"),
    ],
)
def test_bad_descriptions_are_refused_with_one_sentence(text, says):
    with pytest.raises(DevicesError, match=says):
        SimulatedPool.parse(text)
