"""Logins when nothing is free: waiting in line, giving up, and CPU only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.hub.site import Site, until

pytestmark = [pytest.mark.requires_server("node"), pytest.mark.timeout(240)]

POLICY = """
partitions:
  pool:
    gpus: ["*:*"]
    for: [session, job]
    slices:
      - {share: 1/8, cpus: 1, memory: 1GiB}
      - {gpus: 1, cpus: 2, memory: 8GiB}
      - {gpus: 0, cpus: 1, memory: 1GiB}
defaults: {cpus_per_gpu: 2, memory_per_gpu: 8GiB}
groups:
  vision:
    quota: {gpus: 6}
    user: {sessions: 2}
    members: [ada, bob, chen, dora, emil, farah, gita, hugo, ines, jun]
run_as: service
"""
WHOLE = {"slice": "1"}


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    """One card for everybody."""
    return make_site(pool="1x1x8GiB", policy=POLICY).start()


@pytest.fixture(autouse=True)
def _nothing_left(site: Site) -> Iterator[None]:
    yield
    _, users = site.api("GET", "users")
    for user in users:
        site.end(user["name"])
        site.gone(user["name"])
    until(lambda: site.leases() == [], "every lease is free", site.tail)


def follow(site: Site, user: str) -> tuple[list[dict[str, Any]], threading.Thread]:
    """Listen to the progress of a pending start while the test goes on."""
    heard: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: heard.extend(site.progress(user)), daemon=True)
    thread.start()
    return heard, thread


def test_who_waits_is_told_why_and_gets_the_card_when_it_is_free(site: Site) -> None:
    site.log_in("ada", WHOLE)
    assert site.begin("bob", WHOLE)[0] == 202
    heard, thread = follow(site, "bob")
    found = site.server("bob")
    assert found is not None
    assert found["pending"] == "spawn"
    site.end("ada")
    site.ready("bob")
    thread.join(30)
    said = " ".join(event.get("message", "") for event in heard)
    assert "waits" in said.lower() or "waiting" in said.lower(), said
    assert heard[-1].get("ready")
    assert [lease["user"] for lease in site.leases()] == ["bob"]


def test_who_gives_up_leaves_the_line(site: Site) -> None:
    site.log_in("ada", WHOLE)
    site.begin("bob", WHOLE)
    site.begin("chen", WHOLE)
    site.end("bob")
    site.gone("bob")
    site.end("ada")
    site.ready("chen")
    assert [lease["user"] for lease in site.leases()] == ["chen"]


def test_cpu_only_instead_of_waiting(site: Site) -> None:
    site.log_in("ada", WHOLE)
    site.log_in("bob", {**WHOLE, "when_full": "cpu"})
    assert [lease["user"] for lease in site.leases()] == ["ada"]


def test_a_ticket_keeps_its_place_when_the_hub_is_killed(site: Site) -> None:
    site.log_in("emil", WHOLE)
    site.begin("farah", WHOLE)
    until(lambda: (site.server("farah") or {}).get("pending"), "farah waits", site.tail)
    site.kill()
    site.start()
    site.begin("gita", WHOLE)
    site.begin("farah", WHOLE)
    until(lambda: (site.server("farah") or {}).get("pending"), "farah waits again", site.tail)
    site.end("emil")
    site.ready("farah")
    assert [lease["user"] for lease in site.leases()] == ["farah"]
