"""What a user may send: anything; what comes of it: a choice, or one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.spawner.choice import (
    FIELDS,
    PICKED,
    SHOWN,
    Choice,
    pick,
    read_choice,
    split_form,
    without_ours,
)
from jupyter_gpupool.spawner.refusal import Refusal

text = st.text(st.characters(), max_size=300)  # surrogates, controls and all
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=10,
)


def sentence_of(refusal: Refusal) -> str:
    message = refusal.message
    message.encode()  # it can be sent
    assert message.isprintable()
    assert len(message) < 400
    assert refusal.status_code == 400
    return str(message)


@given(st.dictionaries(st.sampled_from(FIELDS) | text, anything, max_size=5) | anything, st.booleans())
def test_any_options_are_a_choice_or_one_sentence(options: Any, alone: bool) -> None:
    try:
        choice = read_choice(options, alone=alone)
    except Refusal as refusal:
        sentence_of(refusal)
    else:
        for name in ("group", "slice", "partition"):
            value = getattr(choice, name)
            assert value is None or (value == options[name] and value.isprintable())


@given(st.dictionaries(st.sampled_from((*FIELDS, PICKED)) | text, st.lists(text, max_size=3), max_size=5))
def test_any_form_is_split_or_one_sentence(form: dict[str, list[str]]) -> None:
    try:
        ours, site = split_form(form)
    except Refusal as refusal:
        sentence_of(refusal)
    else:
        assert set(ours) <= set(FIELDS)
        assert site == {name: form[name] for name in form if name not in (*FIELDS, PICKED, SHOWN)}


def test_the_group_that_is_shown_is_no_option() -> None:
    assert split_form({PICKED: [pick("nlp", "1/8", None)], SHOWN: ["2"]}) == (
        {"group": "nlp", "slice": "1/8"},
        {},
    )


@given(st.none() | text, text, st.none() | text)
def test_what_the_form_offers_comes_back(group: str | None, slice_name: str, partition: str | None) -> None:
    ours, _ = split_form({PICKED: [pick(group, slice_name, partition)]})
    given_ = {"group": group, "slice": slice_name, "partition": partition}
    assert ours == {name: value for name, value in given_.items() if value not in ("", None)}


def test_nothing_is_the_smallest() -> None:
    assert read_choice({}) == Choice(None, None, None, "wait")
    assert read_choice({"group": None, "slice": None}) == Choice()


def test_what_is_the_sites_stays() -> None:
    assert without_ours({"slice": "1", "image": "big"}) == {"image": "big"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "The options of a server must be an object, not []."),
        ({"group": ["a"]}, 'The option group must be text, not ["a"].'),
        ({"when_full": "x"}, 'when_full must be "wait" or "cpu", not "x".'),
        ({"group": "a\tb"}, 'The option group must be 1 to 255 printable letters, not "a\\tb".'),
    ],
)
def test_the_sentence_says_what_is_wrong(options: Any, sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_choice(options)
    assert sentence_of(refused.value) == sentence


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("slyce", 'Unknown option "slyce". Did you mean slice?'),
        ("gpus", 'Unknown option "gpus". Known are group, slice, partition, when_full.'),
    ],
)
def test_a_typing_error_is_no_default(name: str, hint: str) -> None:
    assert read_choice({name: "1"}) == Choice()
    with pytest.raises(Refusal) as refused:
        read_choice({name: "1"}, alone=True)
    assert sentence_of(refused.value) == hint


def test_a_field_that_comes_twice() -> None:
    with pytest.raises(Refusal, match="given 2 times"):
        split_form({"slice": ["1", "2"]})


def test_pick_is_json() -> None:
    assert json.loads(pick(None, "0", None)) == [None, "0", None]
