"""What a Hub's spawner asks for, and what it hears."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from jupyter_gpupool.engines.local.identity import Account
from jupyter_gpupool.service import accounts
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.replies import ChoicesReply, SpawnReply

SLICES = (
    "slices: [{share: 1/8, cpus: 1, memory: 1GiB}, {share: 1/2, cpus: 1, memory: 2GiB},"
    " {gpus: 1, memory: 2GiB}, {gpus: 0, memory: 1GiB}]"
)
SITE = f"""
partitions: {{all: {{gpus: ["*:*"], for: [session, job], {SLICES}}}}}
groups:
  team: {{quota: {{gpus: 2}}, user: {{gpus: 1, session_time: 12h}}}}
  other: {{quota: {{gpus: 1}}}}
default_group: null
"""


def until(look: Callable[[], Any], wanted: Any, patience: float = 20) -> None:
    give_up = time.monotonic() + patience
    while (found := look()) != wanted:
        assert time.monotonic() < give_up, found
        time.sleep(0.02)


def put(hub: Any, policy: str) -> None:
    """Put another policy in force."""
    answer = hub.call("POST", "policy", {"text": policy, "apply": True})
    assert answer.status == 200, answer


def test_a_server_gets_what_its_spawner_needs(hub_side: Any) -> None:
    hub = hub_side(policy=SITE)
    answer = hub.ask(slice="1/8")
    assert answer.status == 201
    TypeAdapter(SpawnReply).validate_python(answer.body, strict=True)
    lease, work = answer.body["lease"], answer.body["work"]
    assert (lease["state"], lease["user"], lease["server"], lease["group"]) == ("held", "ada", "", "team")
    assert lease["environment"]["GPUPOOL_GPU_MEMORY_MIB"] == "1024"
    assert lease["time_s"] == 12 * 3600
    assert (work["key"], work["job"], work["attempt"]) == (f"{lease['id']}/1", lease["id"], 1)
    assert work["folder"] == str(hub.home.path / "jobs" / str(lease["id"]))
    assert (work["cpus_milli"], work["memory_mib"], work["user"]) == (1000, 1024, None)
    assert (12 * 3600 - 60 < work["limit_s"] <= 12 * 3600, work["grace_s"]) == (True, 10)


def test_the_lease_ends_with_the_server(hub_side: Any) -> None:
    hub = hub_side(policy=SITE)
    work = hub.ask(slice="1").body["work"]
    hub.start(work, "exit 3")
    until(lambda: hub.lease(work["job"])["state"], "free")
    assert hub.lease(work["job"])["reason"] == "The server ended with exit code 3."


def test_giving_it_back_ends_the_server_with_all_its_processes(hub_side: Any) -> None:
    hub = hub_side(policy=SITE)
    work = hub.ask(slice="1").body["work"]
    hub.start(work, "setsid sleep 100 & exec sleep 100")
    answer = hub.call("DELETE", f"spawns/{work['job']}")
    assert (answer.status, answer.body["work"]) == (200, None)
    until(lambda: hub.lease(work["job"])["state"], "free")
    assert hub.running() == set()
    assert hub.call("DELETE", f"spawns/{work['job']}").body["lease"]["state"] == "free"


def test_its_user_may_end_it_too(hub_side: Any) -> None:
    hub = hub_side(policy=SITE)
    work = hub.ask(slice="1").body["work"]
    hub.start(work)
    assert hub.call("DELETE", f"leases/{work['job']}").status == 200
    until(lambda: hub.lease(work["job"])["state"], "free")
    assert hub.running() == set()


def test_one_waits_and_is_told_why_and_where(hub_side: Any) -> None:
    hub = hub_side("1x1x8GiB", SITE)
    first = hub.ask("bob", slice="1").body["lease"]
    answer = hub.ask("ada", slice="1")
    assert (answer.status, answer.body["work"]) == (202, None)
    waits = answer.body["lease"]
    assert (waits["waiting"]["reason"], waits["waiting"]["position"]) == ("Resources", 1)
    assert waits["waiting"]["expected_start"] == first["expires_at"]
    hub.call("DELETE", f"spawns/{first['id']}")
    assert hub.lease(waits["id"], wait=10)["state"] == "held"


def test_stopping_while_it_waits_withdraws_it(hub_side: Any) -> None:
    hub = hub_side("1x1x8GiB", SITE)
    hub.ask("bob", slice="1")
    waits = hub.ask("ada", slice="1").body["lease"]
    assert hub.call("DELETE", f"spawns/{waits['id']}").body["lease"]["state"] == "free"


def test_who_does_not_want_to_wait_is_refused_and_nothing_is_queued(hub_side: Any) -> None:
    hub = hub_side("1x1x8GiB", SITE)
    first = hub.ask("bob", slice="1").body["lease"]
    answer = hub.ask("ada", slice="1", wait=False)
    assert (answer.status, answer.error["code"]) == (409, "no_room")
    assert answer.error["retry_at"] == first["expires_at"]
    assert hub.call("GET", f"spawns/{first['id'] + 1}").status == 404
    ticket = hub.ask("ada", slice="1").body["lease"]
    assert hub.ask("ada", slice="1", wait=False).error["code"] == "no_room"
    assert hub.lease(ticket["id"])["state"] == "requested"
    assert hub.ask("ada", slice="0", wait=False).status == 201


def test_asking_again_finds_the_same_place(hub_side: Any) -> None:
    hub = hub_side("1x1x8GiB", SITE)
    first = hub.ask("bob", slice="1").body["lease"]
    assert hub.ask("bob", slice="1").body["lease"]["id"] == first["id"]
    ticket = hub.ask("ada", slice="1").body["lease"]
    assert hub.ask("ada", slice="1").body["lease"]["id"] == ticket["id"]
    other = hub.ask("ada", "second", slice="1/2").body["lease"]
    assert other["id"] != ticket["id"]
    changed = hub.ask("ada", slice="0").body["lease"]
    assert (changed["id"] > ticket["id"], changed["state"]) == (True, "held")
    assert hub.lease(ticket["id"])["reason"] == "Its server was asked for anew."


def test_a_server_that_runs_is_ended_before_it_starts_anew(hub_side: Any) -> None:
    hub = hub_side("1x2x8GiB", SITE)
    work = hub.ask(slice="1").body["work"]
    hub.start(work, "trap 'sleep 0.3; exit 0' TERM; while :; do sleep 0.05; done")
    answer = hub.ask(slice="1")
    again = answer.body["lease"]
    assert (answer.status, again["id"] > work["job"]) == (202, True)
    assert hub.lease(work["job"])["state"] in ("releasing", "free")
    assert hub.lease(again["id"], wait=20)["state"] == "held"
    assert (hub.lease(work["job"])["state"], hub.running()) == ("free", set())


def test_what_is_being_given_back_counts_against_nobody(hub_side: Any) -> None:
    hub = hub_side("1x2x8GiB", SITE)
    work = hub.ask(slice="1").body["work"]
    hub.start(work, "trap 'sleep 0.3; exit 0' TERM; while :; do sleep 0.05; done")
    hub.call("DELETE", f"spawns/{work['job']}")
    assert hub.choices()["groups"][0]["slices"][3]["state"] == "available"
    for server in ("", "second"):
        answer = hub.ask(server=server, slice="1/2")
        assert answer.status in (201, 202)
        assert hub.lease(answer.body["lease"]["id"], wait=20)["state"] == "held"


def test_without_a_choice_one_gets_the_smallest(hub_side: Any) -> None:
    hub = hub_side(policy=SITE)
    request = hub.ask().body["lease"]["request"]
    assert (request["gpus"], request["gpu_mib"]) == (0, 0)
    put(hub, SITE.replace(", {gpus: 0, memory: 1GiB}", ""))
    assert hub.ask("bob").body["lease"]["request"]["gpu_mib"] == 1024


def test_who_is_in_no_group_gets_cpus_only(hub_side: Any) -> None:
    hub = hub_side(policy=SITE)
    answer = hub.ask(groups=["nobody"])
    assert (answer.status, answer.body["lease"]["group"]) == (201, "pool")
    assert answer.body["lease"]["placement"]["gpus"] == []
    answer = hub.ask("bob", groups=[], slice="1/8")
    assert (answer.status, answer.error["code"]) == (422, "no_group")
    assert answer.error["message"] == "You are in no group of the policy, so you can use CPUs only."
    found = hub.choices(groups="nobody")
    assert found["message"] == answer.error["message"]
    assert [cut["slice"] for group in found["groups"] for cut in group["slices"]] == ["0"]
    put(hub, SITE.replace(", {gpus: 0, memory: 1GiB}", ""))
    (group,) = hub.choices(groups="nobody")["groups"]
    assert [(cut["slice"], cut["state"]) for cut in group["slices"]] == [("0", "available")]
    assert hub.ask("eve", groups=[]).body["lease"]["placement"]["gpus"] == []


@pytest.mark.parametrize("user", ["root", "no-such-account", "<b>ada", "ada\n"])
def test_where_work_runs_as_its_user_the_user_must_be_an_account(
    hub_side: Any, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    hub = hub_side(policy=SITE)
    monkeypatch.setattr(ServiceConfig, "as_users", lambda self, policy: True)
    answer = hub.ask(user)
    assert (answer.status, answer.error["code"]) == (422, "no_account")
    assert hub.call("GET", "spawns/1").status == 404


def test_where_work_runs_as_its_user_the_engine_is_told_the_account(
    hub_side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = hub_side(policy=SITE)
    monkeypatch.setattr(ServiceConfig, "as_users", lambda self, policy: True)
    monkeypatch.setattr(
        accounts, "account_of", lambda name: Account(name, 1000, 1000, (1000,), "/", "/bin/sh")
    )
    assert hub.ask("ada").body["work"]["user"] == "ada"


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"slice": "1/3"}, "no_such_slice", 'There is no slice "1/3".'),
        ({"slice": "<script>alert(1)</script>"}, "no_such_slice", "<script>"),
        ({"slice": "\u202e\U0001f4a9"}, "no_such_slice", "There is no slice"),
        ({"slice": 1}, "invalid_option", "slice does not fit"),
        ({"slice": ["1"]}, "invalid_option", "slice does not fit"),
        ({"slice": "1" * 101}, "invalid_option", "slice does not fit"),
        ({"group": "other"}, "not_a_member", 'You are not in the group "other".'),
        ({"group": "nowhere"}, "not_a_member", 'You are not in the group "nowhere".'),
        ({"group": {}}, "invalid_option", "group does not fit"),
        ({"partition": "nowhere"}, "invalid_option", 'There is no partition "nowhere".'),
        ({"groups": "team"}, "invalid_option", "groups does not fit"),
        ({"wait": "yes"}, "invalid_option", "wait does not fit"),
        ({"user": ""}, "invalid_option", "user does not fit"),
        ({"user": "a/b"}, "invalid_option", "user does not fit"),
        ({"user": None}, "invalid_option", "user does not fit"),
        ({"gpus": 1}, "unknown_option", "Unknown option gpus."),
        ({"version": "99.0.0"}, "other_version", "The Hub has jupyter-gpupool 99.0.0"),
    ],
)
def test_bad_input_gets_one_sentence_and_changes_nothing(
    hub_side: Any, change: Any, code: str, words: str
) -> None:
    hub = hub_side(policy=SITE)
    answer = hub.ask(**change)
    assert (answer.status in (409, 422), answer.error["code"]) == (True, code)
    assert words in answer.error["message"]
    assert hub.call("GET", "spawns/1").status == 404
    assert hub.call("GET", "pool").body["nodes"][0]["gpus"][0]["leases"] == []


def test_what_waiting_cannot_clear_is_refused_with_the_numbers(hub_side: Any) -> None:
    hub = hub_side(policy=SITE)
    first = hub.ask(slice="1").body["lease"]
    answer = hub.ask(server="second", slice="1/8")
    assert (answer.status, answer.error["code"]) == (409, "user_limit")
    assert [answer.error[name] for name in ("used", "limit", "unit")] == [1000, 1000, "gpu_milli"]
    assert answer.error["message"].startswith("The limit of ada in team is 1 card: 1 held")
    assert hub.lease(first["id"])["state"] == "held"
    put(hub, SITE.replace("{gpus: 1, memory", "{gpus: 2, memory"))
    answer = hub.ask("bob", slice="2")
    assert (answer.status, answer.error["code"]) == (422, "exceeds_limit")
    assert [answer.error[name] for name in ("used", "limit", "unit")] == [2000, 1000, "gpu_milli"]


def test_the_page_shows_what_would_come_of_each_choice(hub_side: Any) -> None:
    hub = hub_side("1x1x8GiB", SITE)
    found = hub.choices(groups="team,other,unknown")
    TypeAdapter(ChoicesReply).validate_python(found, strict=True)
    assert [group["name"] for group in found["groups"]] == ["team", "other"]
    assert [cut["slice"] for cut in found["groups"][0]["slices"]] == ["0", "1/8", "1/2", "1"]
    assert found["groups"][0]["slices"][1]["label"] == "1/8 of a GPU, 1 CPU, 1GiB"
    assert {cut["state"] for group in found["groups"] for cut in group["slices"]} == {"available"}
    assert found["free"] == [
        {"partition": "all", "gpus": 1, "idle_gpus": 1, "memory_mib": 8192, "free_mib": 8192}
    ]
    lease = hub.ask(slice="1/2").body["lease"]
    found = hub.choices()
    [team] = found["groups"]
    assert (team["used_milli"], team["limit_milli"]) == (500, 2000)
    assert (team["user_used_milli"], team["user_limit_milli"]) == (500, 1000)
    assert (team["user_sessions"], team["user_sessions_limit"]) == (1, None)
    states = {cut["slice"]: cut["state"] for cut in team["slices"]}
    assert states == {"0": "available", "1/8": "available", "1/2": "available", "1": "refused"}
    assert team["slices"][3]["message"].startswith("The limit of ada in team is 1 card: 0.5 held")
    assert found["free"][0]["free_mib"] == 4096
    waits = hub.choices("bob")["groups"][0]["slices"][3]
    assert (waits["state"], waits["expected_start"]) == ("waits", lease["expires_at"])
    assert waits["message"].startswith("Waits for 1 card")


def test_the_page_agrees_with_what_happens(hub_side: Any) -> None:
    hub = hub_side("1x1x8GiB", SITE)
    hub.ask("eve", slice="1/2")
    hub.ask("eve", "second", slice="1/8")
    codes = {201: "available", 202: "waits", 409: "refused", 422: "refused"}
    for user in ("eve", "bob"):
        for cut in hub.choices(user)["groups"][0]["slices"]:
            answer = hub.ask(user, "try", slice=cut["slice"])
            assert codes[answer.status] == cut["state"], (cut, answer)
            if answer.status < 300:
                hub.call("DELETE", f"spawns/{answer.body['lease']['id']}")


def test_partitions_that_offer_different_things(hub_side: Any) -> None:
    hub = hub_side(
        "2x1x8GiB",
        """
partitions:
  small: {gpus: ["node1:*"], for: [session], slices: [{share: 1/8, cpus: 1}, {gpus: 0, cpus: 1}]}
  large: {gpus: ["node2:*"], for: [session], slices: [{share: 1/8, cpus: 2}, {gpus: 0, cpus: 1}, {gpus: 1}]}
groups: {team: {quota: {gpus: 2}}}
""",
    )
    there = [(cut["slice"], cut["partition"]) for cut in hub.choices()["groups"][0]["slices"]]
    assert there == [("0", None), ("1/8", "small"), ("1/8", "large"), ("1", "large")]
    placed = hub.ask(slice="1/8", partition="large").body["lease"]
    assert (placed["placement"]["nodes"], placed["request"]["cpus_milli"]) == (["node2"], 2000)
    assert hub.ask("bob", slice="1").body["lease"]["state"] == "requested"
    answer = hub.ask("eve", slice="1", partition="small")
    assert answer.error["message"] == 'There is no slice "1" in partition small.'


def test_a_policy_that_lost_a_group_breaks_nothing(hub_side: Any) -> None:
    hub = hub_side(policy=SITE)
    work = hub.ask(slice="1/8").body["work"]
    hub.start(work)
    put(hub, SITE.replace("  team:", "  crew:"))
    assert hub.lease(work["job"])["state"] == "held"
    assert hub.choices()["message"].startswith("You are in no group")
    assert hub.ask("bob", slice="1/8").error["code"] == "no_group"
    assert hub.ask(server="second").status == 201
    assert hub.call("DELETE", f"spawns/{work['job']}").status == 200
    until(lambda: hub.lease(work["job"])["state"], "free")


def test_only_servers_are_found_there(hub_side: Any) -> None:
    hub = hub_side(policy=SITE.replace("default_group: null", "default_group: other"))
    kernel = hub.call("POST", "leases", {"gpus": 1}).body
    for verb in ("GET", "DELETE"):
        assert hub.call(verb, f"spawns/{kernel['id']}").status == 404
    assert hub.call("GET", f"leases/{kernel['id']}").body["state"] == "held"
    assert hub.call("GET", "spawns/choices").status == 422
    assert hub.call("GET", "spawns/x").status == 422
