from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.policy.cards import parse_card_pattern
from jupyter_gpupool.policy.units import UnitError


@pytest.mark.parametrize(
    ("pattern", "node", "index", "matches"),
    [
        ("node1:*", "node1", 7, True),
        ("node1:*", "node10", 0, False),
        ("node?:0-3", "node2", 3, True),
        ("node?:0-3", "node2", 4, False),
        ("*:5", "gpu-a.example", 5, True),
        ("*:5", "gpu-a.example", 4, False),
    ],
)
def test_a_pattern_names_cards(card: type, pattern: str, node: str, index: int, matches: bool) -> None:
    assert parse_card_pattern(pattern).matches(card(node, index)) is matches


@pytest.mark.parametrize(
    "text", ["node1", "node1:", ":0", "node1:a", "node[12]:*", "a b:*", "node1:0-", "node1:-1"]
)
def test_other_texts_name_no_cards(text: str) -> None:
    with pytest.raises(UnitError, match=r"names no cards\. Write HOST:CARDS such as"):
        parse_card_pattern(text)


def test_a_range_that_counts_backwards_is_turned_round() -> None:
    with pytest.raises(UnitError, match=r'"node1:3-1" counts backwards\. Write "node1:1-3"\.'):
        parse_card_pattern("node1:3-1")


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("node1:*", "node2:*", False),
        ("node1:*", "node?:*", True),
        ("node1:0-3", "node1:4-7", False),
        ("node1:0-3", "node1:3", True),
        ("*:0", "*:1", False),
        ("a*:*", "*b:*", True),
        ("a*c:*", "b*c:*", False),
        ("a?:*", "a:*", False),
    ],
)
def test_two_patterns_meet_where_one_card_could_match_both(one: str, other: str, meet: bool) -> None:
    assert parse_card_pattern(one).meets(parse_card_pattern(other)) is meet
    assert parse_card_pattern(other).meets(parse_card_pattern(one)) is meet


NAMES = st.text("ab", min_size=1, max_size=4)
PATTERNS = st.builds(
    "{}:{}".format,
    st.text("ab*?", min_size=1, max_size=4),
    st.sampled_from(["*", "0", "1", "0-1", "1-2"]),
)


@given(PATTERNS, PATTERNS, NAMES, st.integers(0, 3))
def test_a_card_in_both_patterns_means_that_they_meet(
    card: type, one: str, other: str, node: str, index: int
) -> None:
    first, second = parse_card_pattern(one), parse_card_pattern(other)
    if first.matches(card(node, index)) and second.matches(card(node, index)):
        assert first.meets(second)
