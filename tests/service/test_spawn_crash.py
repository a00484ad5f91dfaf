"""Killed between any two steps of a login, the service neither leaks a lease nor gives a card away twice."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SERVE = """
import asyncio
from functools import partial
from jupyter_gpupool.service import core, servers
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.main import run
from jupyter_gpupool.service.scopes import ADMINISTRATOR

servers.LOOK_S = 0.05
patience = servers.Patience(ticket={ticket}, claim={claim}, orphan=3600, end=3600)
core.Servers = partial(servers.Servers, patience=patience)
scopes = ADMINISTRATOR | {{"spawn"}}
who = lambda peer: Identity("root", scopes, peer.uid, peer.pid)
asyncio.run(run(ServiceConfig.from_environment(), identify=who))
"""
POLICY = """
partitions: {all: {gpus: ["*:*"], for: [session, job], slices: [{gpus: 1, cpus: 1, memory: 1GiB}]}}
groups: {team: {quota: {gpus: 1}}}
"""


class Site:
    """A service of one card that is killed and comes back; its servers notice a second one on the card."""

    def __init__(self, spawn: Any, hub_side: Any, folder: Path, ticket: float = 3600, claim: float = 3600):
        (folder / "policy.yaml").write_text(POLICY)
        program = ("-c", SERVE.format(ticket=ticket, claim=claim))
        self._begin = lambda: spawn(program=program)
        self._folder = folder
        self.process = self._begin()
        self.hub = hub_side(self.process.call)

    def crash(self) -> None:
        """Kill the service and start the next one."""
        self.process.kill()
        self.process = self._begin()

    def start(self, work: dict[str, Any]) -> None:
        lock, twice = self._folder / "card", self._folder / "twice"
        self.hub.start(work, f"flock -n -E 77 {lock} sleep 100; test $? != 77 || touch {twice}")

    def ends_clean(self) -> None:
        """Nothing is held, nothing runs, and never were two servers on the card."""
        until(self.leases, [])
        until(self.hub.running, set())
        assert not (self._folder / "twice").exists()
        assert self.hub.ask("last").status == 201

    def leases(self) -> list[Any]:
        return self.hub.call("GET", "pool").body["nodes"][0]["gpus"][0]["leases"]


def until(look: Callable[[], Any], wanted: Any, patience: float = 20) -> None:
    give_up = time.monotonic() + patience
    while (found := look()) != wanted:
        assert time.monotonic() < give_up, found
        time.sleep(0.05)


@pytest.fixture
def site(spawn: Any, as_hub: Any, home: Any) -> Callable[..., Site]:
    return lambda **patience: Site(spawn, as_hub, home.path, **patience)


def test_after_the_ticket(site: Any) -> None:
    there = site()
    first = there.hub.ask("bob").body["lease"]
    tickets = [there.hub.ask(user).body["lease"] for user in ("ada", "eve")]
    there.crash()
    assert there.hub.ask("eve").body["lease"]["id"] == tickets[1]["id"]
    again = there.hub.ask("ada")
    assert (again.status, again.body["lease"]["id"]) == (202, tickets[0]["id"])
    assert again.body["lease"]["submitted_at"] == tickets[0]["submitted_at"]
    there.hub.call("DELETE", f"spawns/{first['id']}")
    assert there.hub.lease(tickets[0]["id"], wait=10)["state"] == "held"
    for ticket in tickets:
        there.hub.call("DELETE", f"spawns/{ticket['id']}")
    there.ends_clean()


def test_after_the_grant(site: Any) -> None:
    there = site()
    granted = there.hub.ask().body["lease"]
    there.crash()
    answer = there.hub.ask()
    assert (answer.status, answer.body["lease"]["id"]) == (201, granted["id"])
    there.start(answer.body["work"])
    there.hub.call("DELETE", f"spawns/{granted['id']}")
    there.ends_clean()


def test_after_the_grant_when_nobody_comes_back(site: Any) -> None:
    there = site(ticket=0.5, claim=0.5)
    there.hub.ask()
    there.hub.ask("bob")
    there.crash()
    there.ends_clean()


@pytest.mark.parametrize("lives", [True, False])
def test_after_the_claim(site: Any, lives: bool) -> None:
    there = site(claim=0.5)
    work = there.hub.ask().body["work"]
    there.start(work)
    there.process.kill()
    if not lives:
        there.hub.kill(work["key"])
        until(there.hub.running, set())
    there.crash()
    if lives:
        time.sleep(1)
        assert there.hub.lease(work["job"])["state"] == "held"
        assert there.hub.ask("bob", wait=False).error["code"] == "no_room"
        there.hub.call("DELETE", f"spawns/{work['job']}")
    there.ends_clean()


def test_claimed_while_it_was_down(site: Any) -> None:
    there = site(claim=0.5)
    work = there.hub.ask().body["work"]
    there.process.kill()
    there.start(work)
    time.sleep(1)
    there.crash()
    assert there.hub.lease(work["job"])["state"] == "held"
    there.hub.call("DELETE", f"spawns/{work['job']}")
    there.ends_clean()


@pytest.mark.parametrize("after_ms", [0, 3, 15])
@pytest.mark.parametrize("step", ["ask", "start", "end"])
def test_at_any_moment_of_a_step(site: Any, step: str, after_ms: int) -> None:
    there = site(claim=1)
    if step == "ask":
        racing = threading.Thread(target=quietly(lambda: there.hub.ask()))
    else:
        work = there.hub.ask().body["work"]
        if step == "start":
            racing = threading.Thread(target=lambda: there.start(work))
        else:
            there.start(work)
            racing = threading.Thread(
                target=quietly(lambda: there.hub.call("DELETE", f"spawns/{work['job']}"))
            )
    racing.start()
    time.sleep(after_ms / 1000)
    there.crash()
    racing.join()
    answer = there.hub.ask()
    assert there.hub.lease(answer.body["lease"]["id"], wait=20)["state"] == "held"
    there.start(there.hub.ask().body["work"])
    for id in range(1, answer.body["lease"]["id"] + 2):
        there.hub.call("DELETE", f"spawns/{id}")
    there.ends_clean()


def quietly(step: Callable[[], object]) -> Callable[[], None]:
    """Take a step that a killed service may never answer."""

    def take() -> None:
        with contextlib.suppress(Exception):
            step()

    return take
