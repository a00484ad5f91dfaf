"""Boosts, as administrators, managers and users meet them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.service.granting import Pool


def test_an_administrator_boosts_a_group_and_ends_it(pool: Pool) -> None:
    body = {"group": "vision", "gpus": 2, "cpus": 4, "until": "3d", "because": "The paper is due."}
    boost = pool.done("root", "POST", "boosts", body)
    assert boost["amounts"] == {"gpus_milli": 2000, "cpus_milli": 4000}
    assert (boost["phase"], boost["out_of"], boost["by"]) == ("now", None, "root")
    assert boost["notes"] == [
        "The groups are now owed 10 cards and the pool has 8 cards: work inside quota may have to wait."
    ]
    assert pool.group("ada", "vision")["quota"]["gpus_milli"] == 4000
    assert pool.done("root", "DELETE", f"boosts/{boost['id']}")["phase"] == "over"
    assert pool.group("ada", "vision")["quota"]["gpus_milli"] == 2000
    assert pool.refused("root", "DELETE", f"boosts/{boost['id']}") == (
        409,
        f"The boost {boost['id']} is over already.",
    )


def test_a_boost_that_begins_later_changes_nothing_yet(pool: Pool) -> None:
    boost = pool.done("root", "POST", "boosts", {"group": "vision", "gpus": 2, "start": "1h", "until": "2h"})
    assert boost["phase"] == "coming"
    assert pool.group("ada", "vision")["quota"]["gpus_milli"] == 2000
    assert pool.done("bob", "GET", "boosts")["boosts"][0]["because"] is None  # visibility: groups


def test_a_manager_gives_what_the_own_group_owns_and_no_more(pool: Pool) -> None:
    boost = pool.done("grace", "POST", "boosts", {"group": "vision", "gpus": 2, "until": "1d"})
    assert boost["out_of"] == "lab"
    assert pool.group("ada", "vision")["quota"]["gpus_milli"] == 4000
    answer = pool.ask("grace", "POST", "boosts", {"group": "vision", "gpus": 2, "until": "1d"})
    assert (answer.status, answer.error["code"]) == (409, "exceeds_quota")
    assert answer.error["message"] == (
        "lab is owed 3 cards and has 1 card of that left to give then; 2 cards would be too much."
    )
    assert (answer.error["used"], answer.error["limit"]) == (2000, 3000)
    later = {"group": "vision", "gpus": 3, "start": "2d", "until": "1d", "out_of": "lab"}
    assert pool.done("grace", "POST", "boosts", later)["phase"] == "coming"  # the first is over by then


def test_a_manager_may_lend_a_hand_to_a_group_elsewhere(pool: Pool) -> None:
    body = {"group": "speech", "gpus": 1, "until": "1d", "out_of": "vision"}
    pool.done("ada", "POST", "boosts", body)
    assert pool.group("cy", "speech")["quota"]["gpus_milli"] == 4000
    assert pool.group("ada", "vision")["quota"]["gpus_milli"] == 1000


@pytest.mark.parametrize(
    ("user", "body", "status", "message"),
    [
        ("bob", {"group": "vision", "gpus": 1}, 403, "bob may not do this here"),
        (
            "ada",
            {"group": "vision", "gpus": 1},
            403,
            "ada manages no group that could give something to vision",
        ),
        ("ada", {"group": "vision", "gpus": 1, "out_of": "lab"}, 403, "ada does not manage lab"),
        ("ada", {"group": "vision", "gpus": 1, "out_of": "vision"}, 422, "vision cannot give to itself."),
        ("grace", {"group": "speech", "gpus": 1}, 403, "grace manages no group that could give"),
        ("root", {"group": "visoin", "gpus": 1}, 422, 'There is no group "visoin".'),
        ("root", {"group": "vision"}, 422, "A boost names what it adds."),
        ("root", {"group": "vision", "gpus": 0}, 422, 'gpus "0" is too small.'),
        ("root", {"group": "vision", "gpus": "many"}, 422, 'gpus "many" is not a number.'),
        ("root", {"group": "vision", "gpus": 1, "until": "2020-01-01"}, 422, "does not come after the start"),
        ("root", {"group": "vision", "gpus": 1, "until": "5y"}, 422, "until '5y' is no time."),
        ("root", {"group": "vision", "gpus": 1, "until": "400d"}, 422, "ends within 366d"),
        ("root", {"group": "vision", "gpus": 1, "until": None}, 422, "whatever is granted has an end"),
        ("root", {"group": "vision", "gpus": 1, "start": "2020-01-01"}, 422, "start 2020-01-01 is over."),
        ("root", {"group": "speech", "gpu_hours": 1}, 422, "speech has no budget of its own"),
        ("root", {"group": "vision", "mem": "8"}, 422, 'mem "8" has no unit.'),
        ("root", {"group": "vision", "gpu": 1}, 422, "gpu"),
    ],
)
def test_what_cannot_be_granted_is_refused_with_a_sentence(
    pool: Pool, user: str, body: dict[str, Any], status: int, message: str
) -> None:
    found = pool.refused(user, "POST", "boosts", {"until": "1d", **body})
    assert found[0] == status, found
    assert message in found[1]
    assert not pool.done("root", "GET", "boosts")["boosts"]


def test_one_user_may_get_more_of_the_groups_own_cards(pool: Pool) -> None:
    body = {"group": "vision", "user": "bob", "gpus": 1, "until": "1d"}
    assert pool.done("ada", "POST", "boosts", body)["out_of"] is None
    assert pool.group("bob", "vision")["user"]["limits"]["gpus_milli"] == 2000
    assert pool.group("ada", "vision")["user"]["limits"]["gpus_milli"] == 1000
    assert pool.group("bob", "vision")["quota"]["gpus_milli"] == 2000
    assert pool.refused("ada", "POST", "boosts", body) == (
        409,
        "bob may hold 2 cards; with 1 card more that would be above what vision is owed, 2 cards.",
    )
    mine = pool.done("ada", "GET", "boosts")["boosts"][0]
    assert pool.done("ada", "DELETE", f"boosts/{mine['id']}")["phase"] == "over"


def test_a_user_is_not_raised_above_the_quota_by_boosts_that_begin_later(pool: Pool) -> None:
    later = {"group": "vision", "user": "bob", "gpus": 1, "start": "1h", "until": "2h"}
    pool.done("ada", "POST", "boosts", later)
    assert pool.refused("ada", "POST", "boosts", later | {"start": "2h"})[0] == 409
    pool.done("ada", "POST", "boosts", later | {"start": "3h"})


def test_hours_of_a_period_to_come_are_for_an_administrator_to_give(pool: Pool) -> None:
    later = {"group": "vision", "gpu_hours": 5, "start": "40d", "until": "1d"}
    status, message = pool.refused("grace", "POST", "boosts", later)
    assert (status, message[:45]) == (422, "lab can give GPU hours of the present period,")
    pool.done("root", "POST", "boosts", later)


def test_a_manager_ends_only_what_managers_of_the_own_group_have_granted(pool: Pool) -> None:
    for whom in ({"group": "vision"}, {"group": "vision", "user": "bob"}):
        boost = pool.done("root", "POST", "boosts", {**whom, "gpus": 1, "until": "1d"})
        assert pool.refused("ada", "DELETE", f"boosts/{boost['id']}") == (
            403,
            f"Boost {boost['id']} was granted by root; it is not yours to end.",
        )
    theirs = pool.done("ada", "POST", "boosts", {"group": "vision", "user": "ada", "gpus": 1, "until": "1d"})
    assert pool.done("grace", "DELETE", f"boosts/{theirs['id']}")["phase"] == "over"
    assert pool.refused("root", "DELETE", "boosts/999")[0] == 404
    assert pool.refused("root", "DELETE", "boosts/x")[0] == 422


def test_a_budget_is_raised_for_the_rest_of_its_period(pool: Pool) -> None:
    boost = pool.done("grace", "POST", "boosts", {"group": "vision", "gpu_hours": 20})
    assert (boost["gpu_hours"], boost["amounts"], boost["out_of"]) == (20, {}, "lab")
    zone = ZoneInfo("Europe/Berlin")
    until = datetime.fromisoformat(boost["until"].replace("Z", "+00:00")).astimezone(zone)
    assert (until.day, until.hour, until.minute) == (1, 0, 0)
    budget = pool.group("ada", "vision")["budget"]
    assert (budget["gpu_hours"], budget["spent_gpu_hours"], budget["period"]) == (30, 0, "month")
    assert budget["until"] == boost["until"]
    answer = pool.ask("grace", "POST", "boosts", {"group": "vision", "gpu_hours": 101})
    assert answer.error["code"] == "exceeds_budget"
    assert "lab has 100 of its 100 GPU hours left; 101 would be too much." in answer.error["message"]
