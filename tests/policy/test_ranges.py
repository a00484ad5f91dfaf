"""Arrays as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.policy.ranges import MOST_TASKS, array_text, parse_array
from jupyter_gpupool.policy.units import UnitError


@pytest.mark.parametrize(
    ("text", "tasks", "at_once"),
    [
        ("0-3", (0, 1, 2, 3), None),
        ("0-9%4", tuple(range(10)), 4),
        ("7", (7,), None),
        ("1,5,3", (1, 3, 5), None),
        ("0-99:25", (0, 25, 50, 75), None),
        ("0-3,2-5", (0, 1, 2, 3, 4, 5), None),
        (" 4 , 6-8 % 2 ", (4, 6, 7, 8), 2),
        ("007", (7,), None),
        ("0-9999", tuple(range(10_000)), None),
    ],
)
def test_what_can_be_written(text, tasks, at_once):
    assert parse_array(text) == (tasks, at_once)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9-0", ["counts down", "write 0-9."]),
        ("9-0:3", ["counts down", "write 0-9:3."]),
        ("0..9", ["not a range", "write 0-9."]),
        ("9:1", ["not a range", "write 1-9."]),
        ("0–9", ["not a range", "write 0-9."]),
        ("0-9%0", ['"%0"', "0-9%4"]),
        ("0-9%", ['"%"', "0-9%4"]),
        ("0-9%two", ['"%two"', "1 or more"]),
        ("0-9:0", ["steps of 0", "0-9"]),
        ("-3", ["begin at 0"]),
        ("", ["without a number", "0-9"]),
        ("1,,2", ["without a number"]),
        ("all", ['"all"', "neither"]),
        ("1-2-3", ['"1-2-3"', "neither"]),
        ("0-10000", ["10,001 tasks", "at most 10,000"]),
        ("0-999999999", ["1,000,000,000 tasks", "at most 10,000"]),
        ("1000000000", ["largest", "999,999,999"]),
        ("9" * 5000, ["neither"]),
    ],
)
def test_a_mistake_is_told_with_what_may_have_been_meant(text, words):
    with pytest.raises(UnitError) as caught:
        parse_array(text)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@given(st.sets(st.integers(0, 10**9 - 1), min_size=1, max_size=60))
def test_what_is_written_reads_as_it_was(numbers):
    tasks = tuple(sorted(numbers))
    assert parse_array(array_text(tasks)) == (tasks, None)


def test_it_is_written_short():
    assert array_text(range(MOST_TASKS)) == "0-9999"
    assert array_text([3]) == "3"
    assert array_text([0, 1, 4, 6, 8, 20]) == "0-1,4-8:2,20"
