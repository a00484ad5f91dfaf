"""Reservations and maintenance, as administrators, managers and users meet them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.granting import Pool, cards


def test_cards_are_reserved_by_name_and_cannot_be_twice(pool: Pool) -> None:
    body = {
        "cards": ["node1:0-1"],
        "groups": ["speech"],
        "start": "1h",
        "until": "2h",
        "because": "A course.",
    }
    kept = pool.done("root", "POST", "reservations", body)
    assert cards(kept) == ["node1:0", "node1:1"]
    assert (kept["groups"], kept["maintenance"], kept["phase"], kept["met"]) == (
        ["speech"],
        False,
        "coming",
        [],
    )
    overlap = body | {"cards": ["node1:1-2"], "groups": ["vision"], "start": "2h"}
    status, message = pool.refused("root", "POST", "reservations", overlap)
    assert status == 409
    assert message.startswith("1 of these 2 cards (node1 GPU 1) is reserved for speech from ")
    assert message.endswith(f"(reservation {kept['id']}).")
    after = body | {"start": "10h", "until": "1h"}
    assert pool.done("root", "POST", "reservations", after)["phase"] == "coming"
    assert pool.done("root", "DELETE", f"reservations/{kept['id']}")["phase"] == "over"
    assert pool.done("root", "POST", "reservations", overlap)["groups"] == ["vision"]


def test_a_number_of_cards_is_resolved_to_cards_that_are_free_of_reservations(pool: Pool) -> None:
    body = {"gpus": 3, "groups": ["vision"], "until": "1h"}
    assert cards(pool.done("root", "POST", "reservations", body)) == ["node1:0", "node1:1", "node1:2"]
    assert cards(pool.done("root", "POST", "reservations", body)) == ["node2:0", "node2:1", "node2:2"]
    assert cards(pool.done("root", "POST", "reservations", body | {"gpus": 2})) == ["node1:3", "node2:3"]
    status, message = pool.refused("root", "POST", "reservations", body | {"gpus": 1})
    assert status == 409
    assert "1 card cannot be reserved there: 0 can then" in message
    assert "is the first to end" in message


def test_a_partition_or_node_narrows_the_choice(pool: Pool) -> None:
    body = {"gpus": 1, "groups": ["vision"], "until": "1h"}
    assert cards(pool.done("root", "POST", "reservations", body | {"partition": "training"})) == ["node2:0"]
    assert cards(pool.done("root", "POST", "reservations", body | {"node": "node2"})) == ["node2:1"]


def test_what_a_reservation_meets_is_told_and_chosen_cards_avoid_it(pool: Pool) -> None:
    job = pool.submit("bob", time="3h")
    pool.wait(job["id"], "running")
    place = pool.done("root", "GET", f"jobs/{job['id']}")["placement"]["gpus"][0]
    named = {"cards": [place["uuid"]], "groups": ["speech"], "until": "1h"}
    early = pool.done("root", "POST", "reservations", named | {"start": "1h"})
    assert [(met["id"], met["kind"], met["group"]) for met in early["met"]] == [(job["id"], "job", "vision")]
    late = pool.done("root", "POST", "reservations", named | {"start": "4h"})
    assert late["met"] == []
    own = pool.done("root", "POST", "reservations", named | {"groups": ["vision"], "start": "6h"})
    assert own["met"] == []
    seen = next(
        one for one in pool.done("cy", "GET", "reservations")["reservations"] if one["id"] == early["id"]
    )
    assert seen["met"][0]["user"] is None  # visibility: groups
    chosen = pool.done("root", "POST", "reservations", {"gpus": 3, "groups": ["speech"], "until": "10m"})
    assert place["uuid"] not in [card["uuid"] for card in chosen["cards"]]
    assert pool.done("root", "GET", f"jobs/{job['id']}")["state"] == "running"


def test_a_manager_reserves_out_of_the_groups_quota(pool: Pool) -> None:
    body = {"gpus": 2, "groups": ["vision"], "start": "1h", "until": "1h"}
    kept = pool.done("ada", "POST", "reservations", body)
    assert kept["out_of"] == "vision"
    status, message = pool.refused("ada", "POST", "reservations", body | {"gpus": 1})
    assert (status, message) == (
        409,
        "vision is owed 2 cards and has 0 cards of that left to give then; 1 card would be too much.",
    )
    assert pool.done("ada", "POST", "reservations", body | {"start": "2h"})
    assert pool.refused("ada", "POST", "reservations", body | {"groups": ["speech"]})[0] == 403
    assert pool.refused("bob", "POST", "reservations", body)[0] == 403
    assert pool.refused("grace", "DELETE", "reservations/999")[0] == 404
    assert pool.done("ada", "DELETE", f"reservations/{kept['id']}")["phase"] == "over"


def test_a_manager_reserves_for_one_user_out_of_the_only_group_there_is_to_manage(pool: Pool) -> None:
    body = {"gpus": 1, "users": ["bob"], "until": "2h"}
    assert pool.done("ada", "POST", "reservations", body)["out_of"] == "vision"
    assert pool.refused("grace", "POST", "reservations", body) == (422, "Out of which group's quota?")
    assert pool.refused("bob", "POST", "reservations", body)[0] == 403


def test_maintenance_by_a_manager_comes_out_of_the_groups_quota(pool: Pool) -> None:
    body = {"cards": ["node1:0-1"], "maintenance": True, "until": "2h", "because": "New cables."}
    kept = pool.done("ada", "POST", "reservations", body)
    assert (kept["maintenance"], kept["out_of"]) == (True, "vision")
    assert pool.group("bob", "vision")["quota"]["gpus_milli"] == 0
    assert pool.group("cy", "speech")["quota"]["gpus_milli"] == 3000
    pool.done("ada", "DELETE", f"reservations/{kept['id']}")
    assert pool.group("bob", "vision")["quota"]["gpus_milli"] == 2000
    status, message = pool.refused("ada", "POST", "reservations", body | {"cards": ["node1:*"]})
    assert (status, "vision is owed 2 cards" in message) == (409, True)


@pytest.mark.parametrize(("whom", "owed"), [(["vision"], 2000), (["speech"], 1000)])
def test_cards_for_another_group_are_not_owed_to_the_giver(pool: Pool, whom: list[str], owed: int) -> None:
    body = {"cards": ["node1:0"], "groups": whom, "out_of": "vision", "until": "2h"}
    pool.done("ada", "POST", "reservations", body)
    assert pool.group("bob", "vision")["quota"]["gpus_milli"] == owed


def test_maintenance_is_for_nobody_and_ended_by_who_set_it(pool: Pool) -> None:
    body = {"node": "node2", "maintenance": True, "start": "1d", "until": "4h", "because": "New fans."}
    kept = pool.done("root", "POST", "reservations", body)
    assert cards(kept) == ["node2:0", "node2:1", "node2:2", "node2:3"]
    assert (kept["maintenance"], kept["groups"]) == (True, [])
    assert pool.done("bob", "GET", "reservations")["reservations"][0]["because"] == "New fans."
    assert pool.refused("bob", "POST", "reservations", body)[0] == 403
    assert pool.refused("ada", "DELETE", f"reservations/{kept['id']}")[0] == 403


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"cards": ["node1:0"]}, "A reservation is for somebody."),
        ({"cards": ["node1:0"], "groups": ["vision"], "maintenance": True}, "Maintenance is for nobody."),
        (
            {"cards": ["node1:0"], "gpus": 1, "groups": ["vision"]},
            "Cards are named one by one, or by their number.",
        ),
        ({"cards": ["node1:9"], "groups": ["vision"]}, '"node1:9" names no card of a partition.'),
        ({"cards": ["0-3"], "groups": ["vision"]}, '"0-3" names no cards.'),
        ({"groups": ["vision"]}, "Which cards?"),
        ({"gpus": 1, "groups": ["vison"]}, 'There is no group "vison".'),
        ({"gpus": 1, "groups": ["vision"], "node": "node9"}, 'There is no node "node9".'),
        ({"gpus": 1, "groups": ["vision"], "gpu_type": "h200"}, "There is no card of type h200."),
        ({"gpus": 9, "groups": ["vision"]}, "9 cards cannot be reserved of 8 cards."),
        (
            {"gpus": 1, "groups": ["vision"], "node": "node1", "partition": "training"},
            "There is no card of node node1, partition training.",
        ),
        ({"gpus": 1, "users": [""]}, "users.0 does not fit"),
        ({"gpus": 1, "users": ["a\0b"]}, "users.0 does not fit"),
        ({"gpus": 0, "groups": ["vision"]}, 'gpus "0" is too small.'),
        ({"gpus": 1, "groups": ["vision"], "until": ""}, "until '' is no time."),
    ],
)
def test_a_reservation_that_cannot_be_is_refused(pool: Pool, body: dict[str, Any], message: str) -> None:
    status, said = pool.refused("root", "POST", "reservations", {"until": "1h", **body})
    assert status == 422
    assert message in said
