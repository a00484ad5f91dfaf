"""Boosts, reservations, maintenance, requests and drains, as administrators, managers and users meet them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.scopes import ADMINISTRATOR, Scope

POLICY = """
timezone: Europe/Berlin
partitions:
  development: {gpus: ["node1:*"], for: [session, job]}
  training: {gpus: ["node2:*"], for: [job]}
groups:
  lab: {quota: {gpus: 3}, managers: [grace], members: [grace], budget: {gpu_hours: 100}}
  vision: {parent: lab, quota: {gpus: 2}, managers: [ada], members: [ada, bob], user: {gpus: 1, job_time: 8h},
           budget: {gpu_hours: 10}}
  speech: {quota: {gpus: 3}, members: [cy]}
visibility: groups
"""
USER: tuple[Scope, ...] = ("read", "submit")
SCOPES: dict[str, tuple[Scope, ...]] = {"ada": (*USER, "manage"), "grace": (*USER, "manage")}


class Pool:
    """A service that is asked by whoever a test names."""

    def __init__(self, start: Any):
        self._user = "root"
        self._call = start("2x4x8GiB", POLICY, parts={"identify": self._identify})

    def _identify(self, peer: Peer) -> Identity:
        if self._user == "root":
            return Identity("root", ADMINISTRATOR, peer.uid, peer.pid)
        return Identity(self._user, frozenset(SCOPES.get(self._user, USER)), peer.uid, peer.pid)

    def ask(self, user: str, method: str, path: str, body: Any = None) -> Any:
        """Return the whole answer."""
        self._user = user
        return self._call(method, path, body)

    def done(self, user: str, method: str, path: str, body: Any = None) -> Any:
        """Return the reply of a request that is accepted."""
        answer = self.ask(user, method, path, body)
        assert answer.status < 300, answer
        return answer.body

    def refused(self, user: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Return the status and the sentence of a refusal."""
        answer = self.ask(user, method, path, body)
        assert answer.status >= 400, answer
        return answer.status, answer.error["message"]

    def group(self, user: str, name: str) -> dict[str, Any]:
        """Return a group of a user's quota."""
        return next(one for one in self.done(user, "GET", "quota")["groups"] if one["name"] == name)

    def submit(self, user: str, shell: str = "sleep 60", **more: Any) -> dict[str, Any]:
        self._user = user
        return self._call.submit(shell, **more)

    def wait(self, job: int, *states: str) -> dict[str, Any]:
        self._user = "root"
        return self._call.wait(job, *states)

    def clear(self) -> None:
        """End whatever a test has left."""
        for boost in self.done("root", "GET", "boosts")["boosts"]:
            self.done("root", "DELETE", f"boosts/{boost['id']}")
        for kept in self.done("root", "GET", "reservations")["reservations"]:
            self.done("root", "DELETE", f"reservations/{kept['id']}")
        for node in self.done("root", "GET", "pool")["nodes"]:
            if not node["available"]:
                self.done("root", "DELETE", f"nodes/{node['name']}/drain")
        for request in self.done("root", "GET", "requests")["requests"]:
            self.done("root", "POST", f"requests/{request['id']}/deny", {"answer": "The test is over."})
        for job in self.done("root", "GET", "queue")["running"]:
            self.done("root", "POST", f"jobs/{job['id']}/cancel")
            self.wait(job["id"])


@pytest.fixture(scope="module")
def shared(start_once: Any) -> Pool:
    return Pool(start_once)


@pytest.fixture
def pool(shared: Pool) -> Iterator[Pool]:
    yield shared
    shared.clear()


# -- boosts ----------------------------------------------------------------------------------------


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


def test_a_manager_ends_only_what_the_own_group_gives(pool: Pool) -> None:
    boost = pool.done("root", "POST", "boosts", {"group": "vision", "gpus": 1, "until": "1d"})
    assert pool.refused("ada", "DELETE", f"boosts/{boost['id']}")[0] == 403
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


# -- reservations ----------------------------------------------------------------------------------


def cards(reply: dict[str, Any]) -> list[str]:
    return [f"{card['node']}:{card['index']}" for card in reply["cards"]]


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


# -- requests --------------------------------------------------------------------------------------


def asked(pool: Pool, user: str, kind: str, wants: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"kind": kind, "wants": wants, "because": "The paper is due.", **more}
    return pool.done(user, "POST", "requests", body)


def test_a_user_asks_and_the_manager_approves_with_a_sentence(pool: Pool) -> None:
    request = asked(pool, "bob", "boost", {"gpus": 1, "until": "2d"})
    assert (request["state"], request["group"]) == ("open", "vision")
    assert request["text"] == "1 GPU more for bob in vision for 2d"
    assert [one["id"] for one in pool.done("ada", "GET", "requests")["requests"]] == [request["id"]]
    assert not pool.done("cy", "GET", "requests")["requests"]
    path = f"requests/{request['id']}/approve"
    assert pool.refused("bob", "POST", path, {"answer": "Yes."})[0] == 403
    assert pool.refused("ada", "POST", path, {"answer": ""})[0] == 422
    decided = pool.done("ada", "POST", path, {"answer": "Until the paper is out."})
    assert (decided["state"], decided["by"], decided["answer"]) == (
        "approved",
        "ada",
        "Until the paper is out.",
    )
    boost = pool.done("bob", "GET", "boosts")["boosts"][0]
    assert (boost["id"], boost["user"], boost["because"]) == (decided["grant"], "bob", "The paper is due.")
    assert pool.group("bob", "vision")["user"]["limits"]["gpus_milli"] == 2000
    assert pool.refused("ada", "POST", path, {"answer": "Yes."}) == (
        409,
        f"Request {request['id']} is approved already.",
    )
    assert not pool.done("bob", "GET", "requests")["requests"]
    assert pool.done("bob", "GET", "requests?all=true")["requests"][0]["answer"] == "Until the paper is out."


def test_a_request_is_denied_with_a_sentence_or_taken_back(pool: Pool) -> None:
    request = asked(pool, "bob", "boost", {"gpus": 1, "until": "2d"})
    denied = pool.done("grace", "POST", f"requests/{request['id']}/deny", {"answer": "Not this week."})
    assert (denied["state"], denied["answer"], denied["grant"]) == ("denied", "Not this week.", None)
    assert not pool.done("root", "GET", "boosts")["boosts"]
    request = asked(pool, "bob", "boost", {"gpus": 1, "until": "2d"})
    assert pool.refused("ada", "DELETE", f"requests/{request['id']}")[0] == 404
    assert pool.done("bob", "DELETE", f"requests/{request['id']}")["state"] == "withdrawn"


def test_what_the_manager_could_not_grant_an_approval_does_not_grant_either(pool: Pool) -> None:
    request = asked(pool, "bob", "boost", {"gpus": 2, "until": "2d", "user": None})
    path = f"requests/{request['id']}/approve"
    assert pool.refused("ada", "POST", path, {"answer": "Yes."})[0] == 403
    assert pool.done("ada", "GET", "requests")["requests"][0]["state"] == "open"
    assert pool.done("grace", "POST", path, {"answer": "Yes."})["state"] == "approved"
    assert pool.group("bob", "vision")["quota"]["gpus_milli"] == 4000


def test_a_reservation_that_was_asked_for_comes_out_of_the_groups_quota(pool: Pool) -> None:
    wants = {"gpus": 2, "node": "node2", "start": "1d", "until": "2h"}
    request = asked(pool, "bob", "reservation", wants)
    assert request["text"] == "2 GPUs (node2) set apart for bob in 1d for 2h"
    pool.done("ada", "POST", f"requests/{request['id']}/approve", {"answer": "For the demo."})
    kept = pool.done("bob", "GET", "reservations")["reservations"][0]
    assert (cards(kept), kept["users"], kept["out_of"]) == (["node2:0", "node2:1"], ["bob"], "vision")


def test_a_higher_budget_is_asked_for_and_granted(pool: Pool) -> None:
    request = asked(pool, "ada", "budget", {"gpu_hours": 5})
    assert request["text"] == "5 GPU hours more for vision"
    assert pool.refused("ada", "POST", f"requests/{request['id']}/approve", {"answer": "Yes."})[0] == 403
    pool.done("root", "POST", f"requests/{request['id']}/approve", {"answer": "Once."})
    assert pool.group("ada", "vision")["budget"]["gpu_hours"] == 15


def test_more_time_within_what_the_policy_allows_and_beyond_by_an_administrator(pool: Pool) -> None:
    job = pool.submit("bob", time="4h")
    pool.wait(job["id"], "running")
    before = pool.done("bob", "GET", f"jobs/{job['id']}")
    request = asked(pool, "bob", "time", {"work": job["id"], "time": "3h"})
    assert request["text"] == f"3h more for {job['id']}"
    pool.done("ada", "POST", f"requests/{request['id']}/approve", {"answer": "Let it finish."})
    after = pool.done("bob", "GET", f"jobs/{job['id']}")
    assert after["time_s"] == before["time_s"] + 3 * 3600 == 7 * 3600
    ends = [datetime.fromisoformat(reply["expires_at"].replace("Z", "+00:00")) for reply in (before, after)]
    assert ends[1] - ends[0] == timedelta(hours=3)
    again = asked(pool, "bob", "time", {"work": job["id"], "time": "2h"})
    path = f"requests/{again['id']}/approve"
    status, message = pool.refused("ada", "POST", path, {"answer": "Fine."})
    assert status == 409
    assert "may last 7h; with 2h more that would be above what the policy allows in vision, 8h" in message
    assert pool.done("root", "POST", path, {"answer": "Fine."})["state"] == "approved"
    assert pool.done("bob", "GET", f"jobs/{job['id']}")["time_s"] == 9 * 3600


def test_a_job_that_was_given_time_is_not_ended_at_its_first_limit(pool: Pool) -> None:
    job = pool.submit("bob", "sleep 2.5", time="2s", grace="0s")
    request = asked(pool, "bob", "time", {"work": job["id"], "time": "1h"})
    pool.done("ada", "POST", f"requests/{request['id']}/approve", {"answer": "Let it finish."})
    assert pool.wait(job["id"], "completed", "timed_out", "failed")["state"] == "completed"


def test_a_session_gets_more_time(pool: Pool) -> None:
    lease = pool.done("bob", "POST", "leases", {"gpus": 1, "time": "1h"})
    request = asked(pool, "bob", "time", {"work": lease["id"], "time": "30m"})
    pool.done("ada", "POST", f"requests/{request['id']}/approve", {"answer": "Fine."})
    after = pool.done("bob", "GET", f"leases/{lease['id']}")
    assert (after["time_s"], after["state"]) == (5400, "held")
    ends = [datetime.fromisoformat(reply["expires_at"].replace("Z", "+00:00")) for reply in (lease, after)]
    assert ends[1] - ends[0] == timedelta(minutes=30)
    pool.done("bob", "DELETE", f"leases/{lease['id']}")


@pytest.mark.parametrize(
    ("user", "kind", "wants", "status", "message"),
    [
        ("bob", "boost", {"gpus": "x", "until": "1d"}, 422, 'gpus "x" is not a number.'),
        ("bob", "boost", {"gpus": 1}, 422, "whatever is granted has an end"),
        ("bob", "boost", {"gpus": 1, "until": "yesterday"}, 422, "until 'yesterday' is no time."),
        ("bob", "boost", {"cards": 1}, 422, "cards"),
        ("bob", "budget", {"gpus": 1, "until": "1d"}, 422, "A higher budget is asked for in GPU hours."),
        ("bob", "reservation", {"gpus": 1, "until": "soon"}, 422, "until 'soon' is no time."),
        ("bob", "boost", {"cpus": 1, "until": "1d"}, 422, "Of one user only the number of cards"),
        (
            "bob",
            "boost",
            {"gpus": 1, "until": "1d", "user": "cy", "group": "speech"},
            422,
            "no limit to raise",
        ),
        ("bob", "reservation", {"gpus": 99, "until": "1h"}, 422, "99 cards cannot be reserved of 8 cards"),
        ("bob", "reservation", {"cards": ["node7:1"], "until": "1h"}, 422, "names no card"),
        ("bob", "reservation", {"gpus": 1, "until": "1h", "maintenance": True}, 422, "for nobody"),
        ("bob", "time", {"work": 999_999, "time": "1h"}, 404, "There is no job or lease 999999"),
        ("bob", "time", {"work": 999_999, "time": "long"}, 422, "is not a duration"),
        ("eve", "boost", {"gpus": 1, "until": "1d"}, 422, "group"),
    ],
)
def test_a_request_that_nobody_could_grant_is_refused_at_once(
    pool: Pool, user: str, kind: str, wants: dict[str, Any], status: int, message: str
) -> None:
    body = {"kind": kind, "wants": wants, "because": "Please."}
    found = pool.refused(user, "POST", "requests", body)
    assert found[0] == status, found
    assert message in found[1]


def test_more_time_is_decided_in_the_group_of_the_work_and_asked_for_before_its_end(pool: Pool) -> None:
    job = pool.submit("eve", "true", resources={"gpus": 0})
    pool.wait(job["id"], "completed")
    body = {"kind": "time", "wants": {"work": job["id"], "time": "1h"}, "because": "Please."}
    ended = f"Job {job['id']} is completed: it can have no more time."
    assert pool.refused("eve", "POST", "requests", body) == (409, ended)
    job = pool.submit("eve", resources={"gpus": 0})
    wish = {"work": job["id"], "time": "1h"}
    request = asked(pool, "eve", "time", wish)
    assert request["group"] == "pool"
    assert pool.refused("ada", "POST", f"requests/{request['id']}/approve", {"answer": "Yes."})[0] == 404
    pool.done("root", "POST", f"requests/{request['id']}/approve", {"answer": "Yes."})


def test_more_time_is_for_ones_own_work(pool: Pool) -> None:
    job = pool.submit("cy", time="1h")
    body = {"kind": "time", "wants": {"work": job["id"], "time": "1h"}, "because": "Please."}
    assert pool.refused("bob", "POST", "requests", body)[0] == 404


def test_too_many_open_requests_are_refused(pool: Pool) -> None:
    for _ in range(20):
        asked(pool, "bob", "boost", {"gpus": 1, "until": "2d"})
    body = {"kind": "boost", "wants": {"gpus": 1, "until": "2d"}, "because": "Please."}
    assert pool.refused("bob", "POST", "requests", body) == (409, "20 requests of yours wait for an answer.")


# -- how groups stand ------------------------------------------------------------------------------


def test_a_group_that_borrows_says_so_and_so_does_the_one_that_lends(pool: Pool) -> None:
    job = pool.submit("cy", resources={"gpus": 4, "cpus": 1, "mem": "256MiB"}, time="1h", resumable=True)
    pool.wait(job["id"], "running")
    speech = pool.group("cy", "speech")
    ends = pool.done("cy", "GET", f"jobs/{job['id']}")["expires_at"]
    assert speech["borrowed"] == [{"group": "lab", "gpus_milli": 1000, "until": ends, "on_demand": True}]
    lab = pool.group("grace", "lab")
    assert lab["lent"] == [{"group": "speech", "gpus_milli": 1000, "until": ends, "on_demand": True}]
    assert (lab["over_since"], lab["borrowed"], pool.group("bob", "vision")["lent"]) == (None, [], [])
    since = speech["over_since"]
    assert since is not None
    assert pool.group("cy", "speech")["over_since"] <= since
    boost = pool.done("root", "POST", "boosts", {"group": "speech", "gpus": 1, "until": "1h"})
    assert pool.group("cy", "speech")["over_since"] is None
    assert pool.group("cy", "speech")["boosts"][0]["id"] == boost["id"]


# -- nodes, and who did what -----------------------------------------------------------------------


def test_a_drained_node_takes_no_new_work_and_what_runs_goes_on(pool: Pool) -> None:
    job = pool.submit("bob", partition="training")
    pool.wait(job["id"], "running")
    drained = pool.done("root", "POST", "nodes/node2/drain", {"because": "New fans."})
    assert [one["id"] for one in drained["running"]] == [job["id"]]
    node = next(one for one in pool.done("bob", "GET", "pool")["nodes"] if one["name"] == "node2")
    assert (node["available"], node["because"]) == (False, "New fans.")
    waits = pool.submit("cy", partition="training")
    again = pool.done("root", "GET", f"jobs/{waits['id']}")
    assert again["state"] == "queued"
    assert pool.done("root", "GET", f"jobs/{job['id']}")["state"] == "running"
    assert pool.done("root", "DELETE", "nodes/node2/drain")["drained"] is False
    pool.wait(waits["id"], "running")
    assert pool.refused("root", "DELETE", "nodes/node2/drain") == (
        409,
        "node2 is not drained: it takes new work.",
    )
    assert pool.refused("root", "POST", "nodes/node9/drain", {})[0] == 404
    assert pool.refused("ada", "POST", "nodes/node2/drain", {})[0] == 403


def test_every_action_is_kept_with_who_did_it(pool: Pool) -> None:
    boost = pool.done(
        "grace", "POST", "boosts", {"group": "vision", "gpus": 1, "until": "1d", "because": "Due."}
    )
    pool.done("grace", "DELETE", f"boosts/{boost['id']}")
    pool.done("root", "POST", "nodes/node1/drain", {"because": "Fans."})
    pool.done("root", "DELETE", "nodes/node1/drain")
    pool.done("root", "POST", "policy", {"text": POLICY + "# once more\n", "apply": True})
    found = pool.done("root", "GET", "actions?limit=5")["actions"]
    assert [(one["by"], one["action"]) for one in found] == [
        ("root", "apply policy"),
        ("root", "undrain"),
        ("root", "drain"),
        ("grace", "end boost"),
        ("grace", "boost"),
    ]
    assert found[-1]["text"].startswith("vision gets 1 card more until ")
    assert found[-1]["text"].endswith(", out of lab. Due.")
    assert pool.refused("ada", "GET", "actions")[0] == 403
