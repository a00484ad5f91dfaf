from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.policy.units import (
    UnitError,
    charge_milli,
    format_duration,
    format_milli,
    format_size,
    parse_count,
    parse_cpus,
    parse_duration,
    parse_milli,
    parse_share,
    parse_size,
    slice_mib,
)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("4GiB", 4096),
        ("4096MiB", 4096),
        ("4Gi", 4096),
        ("4Mi", 4),
        ("2TiB", 2 * 1024 * 1024),
        ("1.5GiB", 1536),
        ("0.5Gi", 512),
        (" 4 GiB ", 4096),
    ],
)
def test_sizes_are_read_in_mib(text: str, mib: int) -> None:
    assert parse_size(text, what="--gpu-memory") == mib


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("8", '--gpu-memory "8" has no unit. Write 8GiB or 8MiB.'),
        (8, '--gpu-memory "8" has no unit. Write 8GiB or 8MiB.'),
        ("8GB", '--gpu-memory "8GB" has the unknown unit "GB". Write MiB, GiB or TiB: 8GiB.'),
        ("8gib", '--gpu-memory "8gib" has the unknown unit "gib". Write MiB, GiB or TiB: 8GiB.'),
        ("0", '--gpu-memory "0" is zero. Write a size above zero, or leave it out.'),
        ("0GiB", '--gpu-memory "0GiB" is zero. Write a size above zero, or leave it out.'),
        ("NaN", '--gpu-memory "NaN" is not a number. Write a size such as 4GiB or 4096MiB.'),
        (float("nan"), '--gpu-memory "nan" is not a number. Write a size such as 4GiB or 4096MiB.'),
        ("inf", '--gpu-memory "inf" is not a number. Write a size such as 4GiB or 4096MiB.'),
        ("-1", '--gpu-memory "-1" is negative. Write a size such as 4GiB or 4096MiB.'),
        ("-1GiB", '--gpu-memory "-1GiB" is negative. Write a size such as 4GiB or 4096MiB.'),
        ("0.3GiB", '--gpu-memory "0.3GiB" is not a whole number of MiB. Write 307MiB.'),
        ("lots", '--gpu-memory "lots" is not a size. Write a size such as 4GiB or 4096MiB.'),
        ("1.2.3GiB", '--gpu-memory "1.2.3GiB" is not a size. Write a size such as 4GiB or 4096MiB.'),
        ("", '--gpu-memory "" is not a size. Write a size such as 4GiB or 4096MiB.'),
        (True, '--gpu-memory "true" is not a size. Write a size such as 4GiB or 4096MiB.'),
        ("64GiB", '--gpu-memory "64GiB" is more than a card has: 32GiB. Ask for 32GiB or less.'),
        ("100MiB", '--gpu-memory "100MiB" is less than the least allowed, 256MiB. Ask for 256MiB or more.'),
    ],
)
def test_a_bad_size_gets_one_sentence_and_a_remedy(text: object, sentence: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_size(text, what="--gpu-memory", minimum=256, maximum=32 * 1024)
    assert str(caught.value) == sentence
    assert sentence == f"{caught.value.message} {caught.value.remedy}"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8h", 28800), ("90m", 5400), ("3d", 259200), ("1h30m", 5400), ("45s", 45), ("1d2h3m4s", 93784)],
)
def test_durations_are_read_in_seconds(text: str, seconds: int) -> None:
    assert parse_duration(text, what="--time") == seconds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("8", '--time "8" has no unit. Write 8h, 8m or 8s.'),
        ("8x", '--time "8x" is not a duration. Write days, hours, minutes: 3d, 8h, 1h30m.'),
        ("30m1h", '--time "30m1h" is not a duration. Write days, hours, minutes: 3d, 8h, 1h30m.'),
        ("", '--time "" is not a duration. Write days, hours, minutes: 3d, 8h, 1h30m.'),
        ("1.5", '--time "1.5" is not a duration. Write days, hours, minutes: 3d, 8h, 1h30m.'),
        ("0", '--time "0" is zero. Write a duration such as 8h, 90m or 1h30m.'),
        ("0h", '--time "0h" is zero. Write a duration such as 8h, 90m or 1h30m.'),
        ("-5m", '--time "-5m" is negative. Write a duration such as 8h, 90m or 1h30m.'),
        ("nan", '--time "nan" is not a number. Write a duration such as 8h, 90m or 1h30m.'),
        ("99999d", '--time "99999d" is too long. Write 3650d or less.'),
    ],
)
def test_a_bad_duration_gets_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_duration(text, what="--time")
    assert str(caught.value) == sentence


def test_a_duration_may_be_zero_only_where_that_is_said() -> None:
    assert parse_duration("0s", what="grace", zero=True) == 0
    with pytest.raises(UnitError, match="has no unit"):
        parse_duration("0", what="grace", zero=True)


def test_counts() -> None:
    assert parse_count("0", what="--gpus") == 0
    assert parse_count(8, what="--gpus") == 8


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("-1", '--gpus "-1" is negative. Write a whole number, 1 or more.'),
        ("1.5", '--gpus "1.5" is not a whole number. Write a whole number, 1 or more.'),
        ("NaN", '--gpus "NaN" is not a number. Write a whole number, 1 or more.'),
        ("two", '--gpus "two" is not a whole number. Write a whole number, 1 or more.'),
        (True, '--gpus "true" is not a whole number. Write a whole number, 1 or more.'),
        ("0", '--gpus "0" is too small. Write 1 or more.'),
        ("33", '--gpus "33" is more than 32. Write 32 or less.'),
    ],
)
def test_a_bad_count_gets_one_sentence(text: object, sentence: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_count(text, what="--gpus", minimum=1, maximum=32)
    assert str(caught.value) == sentence


def test_cpus_are_thousandths() -> None:
    assert parse_cpus("4", what="--cpus") == 4000
    assert parse_cpus(0.5, what="--cpus") == 500


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0", '--cpus "0" is too small. Write 0.001 or more.'),
        ("-2", '--cpus "-2" is negative. Write a number such as 4 or 0.5.'),
        ("four", '--cpus "four" is not a number. Write a number such as 4 or 0.5.'),
        ("0.0001", '--cpus "0.0001" has more than three decimal places. Write at most three.'),
        ("NaN", '--cpus "NaN" is not a number. Write a number such as 4 or 0.5.'),
    ],
)
def test_a_bad_number_of_cpus_gets_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_cpus(text, what="--cpus")
    assert str(caught.value) == sentence


def test_shares_are_in_lowest_terms() -> None:
    assert parse_share("1/8") == (1, 8)
    assert parse_share("2 / 8") == (1, 4)


@pytest.mark.parametrize("text", ["8/8", "9/8", "0/8", "1/0", "0.5", "1/-8", "NaN", "", "-1"])
def test_a_share_lies_between_none_and_a_whole_card(text: str) -> None:
    with pytest.raises(UnitError, match=r"is not a part of one card\. Write 1/8 for an eighth"):
        parse_share(text)


def test_texts_of_amounts() -> None:
    assert [format_size(mib) for mib in (0, 1, 1024, 1536, 40960)] == [
        "0MiB",
        "1MiB",
        "1GiB",
        "1536MiB",
        "40GiB",
    ]
    assert [format_duration(s) for s in (0, 45, 5400, 86400)] == ["0s", "45s", "1h30m", "1d"]
    assert [format_milli(m) for m in (0, 5, 500, 1000, 1250, 40000)] == [
        "0",
        "0.005",
        "0.5",
        "1",
        "1.25",
        "40",
    ]


@given(st.integers(1, 10**9))
def test_a_written_size_reads_back(mib: int) -> None:
    assert parse_size(format_size(mib), what="size") == mib


@given(st.integers(0, 3650 * 86400))
def test_a_written_duration_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds), what="time", zero=True) == seconds


@given(st.integers(0, 10**9))
def test_a_written_decimal_reads_back(milli: int) -> None:
    assert parse_milli(format_milli(milli), what="cpus") == milli


@given(st.text(max_size=12) | st.from_regex(r"-?[0-9.]{1,9} ?[A-Za-z]{0,3}", fullmatch=True))
def test_any_text_is_an_amount_or_one_clear_error(text: str) -> None:
    for parse in (parse_size, parse_duration, parse_count, parse_milli, parse_share):
        try:
            parse(text, what="x")
        except UnitError as error:
            sentences = error.message, error.remedy
        else:
            continue
        assert all(sentence.endswith(".") for sentence in sentences)


def test_slices_worked_by_hand() -> None:
    assert slice_mib(32768, 1, 8) == 4096
    assert slice_mib(81559, 1, 8) == 10194  # 10194.875 rounded down
    assert charge_milli(4096, 32768, (1, 8)) == 125
    assert charge_milli(10923, 32768, (1, 3)) == 333
    assert charge_milli(5000, 32768) == 153  # 152.59 rounded up
    assert charge_milli(32768, 32768) == 1000


@given(st.integers(2, 64), st.integers(256 * 64, 200_000))
def test_all_slices_of_a_card_fit_it_in_memory_and_in_charge(n: int, card: int) -> None:
    mib = slice_mib(card, 1, n)
    assert n * mib <= card
    assert n * charge_milli(mib, card, (1, n)) <= 1000


@given(st.integers(256, 200_000), st.data())
def test_a_size_is_charged_its_part_of_the_card_rounded_up(card: int, data: st.DataObject) -> None:
    mib = data.draw(st.integers(1, card))
    assert charge_milli(mib, card) == ceil(Fraction(1000 * mib, card))
