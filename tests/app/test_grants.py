"""The commands of grants, over a real pool; and what is typed wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import Said
from tests.faces.real import environment

Shell = Callable[..., Said]


@pytest.fixture
def here(shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell of this process over the real pool, in which nothing is granted at the end."""
    for name in ("GPUPOOL_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, environment(home)[name])
    yield shell
    for boost in shell("boost", "--json").json["boosts"]:
        shell("boost", "--end", str(boost["id"]))
    for kept in shell("reserve", "--json").json["reservations"]:
        shell("reserve", "--end", str(kept["id"]))


def said(shell: Shell, *words: str) -> list[str]:
    found = shell(*words)
    assert (found.code, found.err) == (0, ""), found
    return found.out.splitlines()


def test_a_boost_is_granted_listed_and_ended(here: Shell) -> None:
    lines = said(
        here, "boost", "everyone", "--gpus", "1", "--cpus", "2", "--until", "2h", "--because", "A demo."
    )
    assert lines[0].split(" more until ")[0].split(": ")[1] == "everyone gets 1 GPU, 2 CPU cores"
    assert "The groups are now owed 3 cards and the pool has 2 cards" in lines[1]
    assert said(here, "boost")[0].split() == ["ID", "GROUP", "MORE", "FROM", "UNTIL", "OUT", "OF", "BECAUSE"]
    assert "of 3" in "\n".join(said(here, "quota"))
    number = here("boost", "--json").json["boosts"][0]["id"]
    assert said(here, "boost", "--end", str(number)) == [f"Boost {number} is over."]
    assert said(here, "boost") == ["No boost holds or will."]
    assert said(here, "actions", "--limit", "1")[1].endswith(f"end boost  Boost {number} ended.")


def test_cards_are_reserved_and_maintained(here: Shell) -> None:
    kept = said(here, "reserve", "node1:0", "--for", "everyone", "--from", "1h", "--until", "1h")[0]
    assert "node1: GPU 0 for everyone from " in kept
    nothing = said(here, "maintenance")
    planned = said(
        here, "maintenance", "--node", "node1", "--from", "1d", "--until", "4h", "--because", "Fans."
    )
    assert planned[0].startswith("Maintenance ")
    assert "node1: GPU 0, 1 from " in planned[0]
    assert nothing == ["Nothing is reserved."]
    assert len(said(here, "maintenance")) == 2
    assert len(said(here, "reserve")) == 3
    refused = here("reserve", "--gpus", "2", "--for", "everyone", "--from", "1h", "--until", "1h")
    assert (refused.code, refused.out) == (1, "")
    assert "2 cards cannot be reserved there: 1 can then" in refused.err
    unsaid = here("reserve", "--for", "everyone")
    assert (unsaid.code, unsaid.out) == (2, "")
    assert "until" in unsaid.err


def test_a_request_is_made_approved_denied_and_taken_back(here: Shell) -> None:
    asks = ("request", "boost", "--whole-group", "--gpus", "1", "--until", "2h", "--because", "A demo.")
    numbers = [here(*asks, "--json").json["id"] for _ in range(3)]
    assert said(here, *asks)[0].endswith("waits for an answer: 1 GPU more for everyone for 2h.")
    approved = said(here, "approve", str(numbers[0]), "For", "the", "demo.")
    assert "is approved: 1 GPU more for everyone for 2h. For the demo." in approved[0]
    assert "is denied" in said(here, "deny", str(numbers[1]), "Not now.")[0]
    assert "is withdrawn" in said(here, "requests", "--withdraw", str(numbers[2]))[0]
    assert len(said(here, "requests")) == 2
    assert len(said(here, "requests", "--all")) >= 5
    left = here("requests", "--json").json["requests"][0]["id"]
    said(here, "requests", "--withdraw", str(left))
    assert here("boost", "--json").json["boosts"][0]["because"] == "A demo."


def test_more_time_and_reservations_are_asked_for(here: Shell) -> None:
    refused = here("request", "time", "999", "3h", "--because", "It is slow.")
    assert (refused.code, refused.err.split(".")[0]) == (1, "There is no job or lease 999")
    asked = here(
        "request", "reservation", "--card", "node1:0", "--until", "2h", "--because", "A demo.", "--json"
    ).json
    assert asked["wants"]["cards"] == ["node1:0"]
    said(here, "requests", "--withdraw", str(asked["id"]))


def test_a_node_is_drained_and_comes_back(here: Shell) -> None:
    assert said(here, "drain", "node1", "--because", "Fans.") == [
        "node1 takes no new work. Nothing runs there."
    ]
    assert "node1 takes no new work: Fans." in said(here, "gpus")
    assert said(here, "undrain", "node1") == ["node1 takes new work again."]
    assert here("drain", "a/b").err == "There is no node a/b. There is node1.\n"
    missing = here("drain", "node7")
    assert (missing.code, missing.err) == (1, "There is no node node7. Did you mean node1?\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["request", "boost", "--gpus", "1"], "Say why, for those who decide."),
        (["request", "boost", "x", "--because", "y"], "'x' is one argument too many."),
        (["request", "time", "3h", "--because", "y"], "Name the job and how much more: request time 17 3h"),
        (["request", "boots"], "'boots' is not one of: 'boost', 'reservation', 'time', 'budget'."),
        (["boost", "a", "--gpus-of", "h200"], "--gpus-of h200: write the type and how many, such as h200=2."),
        (["approve", "3"], "SENTENCE is missing."),
        (["approve", "x", "Yes."], "ID 'x' is not a whole number."),
        (["drain"], "NODE is missing."),
    ],
)
def test_a_mistake_is_one_sentence(shell: Shell, fake: Any, words: list[str], sentence: str) -> None:
    found = shell(*words)
    assert (found.code, found.out) == (2, "")
    assert sentence in found.err
