"""Logins at a real Hub, as REST clients make them: options, quota, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hub.site import Site, until

pytestmark = [pytest.mark.requires_server("node"), pytest.mark.timeout(240)]

EIGHTH = {"slice": "1/8"}


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site().start()


@pytest.fixture(autouse=True)
def _nothing_left(site: Site) -> Iterator[None]:
    """Each test begins and ends without a lease."""
    yield
    _, users = site.api("GET", "users")
    for user in users:
        for server in user["servers"]:
            site.end(user["name"], server)
    until(lambda: site.leases() == [], "every lease is free", site.tail)


def environment_of_server(site: Site, user: str) -> dict[str, str]:
    """Return the environment of a user's server as the kernel knows it."""
    for pid in site.processes():
        variables = dict(
            item.split("=", 1) for item in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in item
        )
        if variables.get("JUPYTERHUB_USER") == user:
            return variables
    raise AssertionError(f"{user} has no server")


def test_a_slice_is_leased_and_its_server_carries_it(site: Site) -> None:
    status, reply = site.begin("ada", EIGHTH)
    assert status in (201, 202), reply
    site.ready("ada")
    (lease,) = site.leases()
    assert (lease["user"], lease["group"], lease["kind"]) == ("ada", "vision", "session")
    assert lease["mib"] == lease["memory_mib"] // 8
    variables = environment_of_server(site, "ada")
    assert variables["GPUPOOL_GPUS"] == lease["uuid"]
    assert variables["GPUPOOL_GPU_MEMORY_MIB"] == str(lease["mib"])
    assert variables["OMP_NUM_THREADS"] == "4"
    assert "GPUPOOL_JOB_DIR" not in variables
    site.end("ada")
    until(lambda: site.leases() == [], "the lease is free", site.tail)


def test_no_options_mean_the_smallest_choice(site: Site) -> None:
    assert site.begin("bob", {})[0] in (201, 202)
    site.ready("bob")
    assert site.leases() == []
    assert environment_of_server(site, "bob")["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"slice": "3/7"}, "3/7"),
        ({"slice": 5}, "slice"),
        ({"slice": ["1/8"]}, "slice"),
        ({"slice": {"$ne": 1}}, "slice"),
        ({"slice": "<script>alert(1)</script>"}, "script"),
        ({"slice": "1/8", "group": "nlp"}, "nlp"),
        ({"slice": "1/8", "group": "гру\u0301ппа"}, "гру\u0301ппа"),
        ({"slice": "1/8", "partition": "training"}, "training"),
        ({"slice": "1/8", "partition": "../../etc"}, "etc"),
        ({"slice": "1/8", "when_full": "steal"}, "when_full"),
        ({"slyce": "1/8"}, "slyce"),
        ({"slice": "2"}, "2"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence_and_changes_nothing(
    site: Site, options: dict[str, object], sentence: str
) -> None:
    status, reply = site.begin("chen", options)
    assert 400 <= status < 500, reply
    assert sentence in reply["message"]
    assert "Traceback" not in str(reply)
    site.gone("chen")
    assert site.leases() == []


def test_named_servers_count_and_a_third_session_is_refused_with_the_numbers(site: Site) -> None:
    site.begin("dora", EIGHTH)
    site.log_in("dora", EIGHTH, server="second")
    site.ready("dora", "second")
    assert len(site.leases()) == 2
    status, reply = site.begin("dora", EIGHTH, server="third")
    assert 400 <= status < 500, reply
    assert "2 sessions" in reply["message"]
    assert len(site.leases()) == 2


def test_the_group_is_the_one_of_now_not_of_the_login(site: Site) -> None:
    site.api("POST", "users/emil")
    site.api("POST", "groups/speech/users", {"users": ["emil"]})
    site.log_in("emil", {**EIGHTH, "group": "speech"})
    assert [lease["group"] for lease in site.leases()] == ["speech"]
    site.end("emil")
    site.gone("emil")
    site.api("DELETE", "groups/speech/users", {"users": ["emil"]})
    status, reply = site.begin("emil", {**EIGHTH, "group": "speech"})
    assert 400 <= status < 500
    assert "speech" in reply["message"]
