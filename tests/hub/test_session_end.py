"""A real server's time is bounded, and so is its idleness; its owner hears of it, and jobs outlive it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.hub import stepped
from tests.hub.site import Site, until
from tests.service.receivers import Webhook

pytestmark = [pytest.mark.requires_server("node"), pytest.mark.timeout(300)]

POLICY = """
partitions:
  pool:
    gpus: ["*:*"]
    for: [session, job]
    slices: [{share: 1/2, cpus: 1, memory: 2GiB}]
groups:
  vision: {quota: {gpus: 1}, user: {session_time: 40s}}
  speech: {quota: {gpus: 1}, user: {session_time: 12h}}
sessions: {idle_after: 30m, idle_action: stop}
notify: {webhook: URL}
run_as: service
"""
SERVER = """
from jupyter_gpupool.server import activity, singleuser
activity.EVERY_S = 0.2
singleuser.main()
"""


@pytest.fixture(scope="module")
def messages() -> Iterator[Webhook]:
    receiver = Webhook()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site], messages: Webhook) -> Site:
    command = [sys.executable, "-P", "-c", SERVER]
    extra = f"{stepped.configuration()}\nc.Spawner.cmd = {command!r}"
    return make_site(pool="1x2x8GiB", policy=POLICY.replace("URL", messages.url), extra=extra).start()


def submit(site: Site, user: str) -> Callable[[], dict[str, Any]]:
    """Let a job run that says nothing of itself; return what shows it."""
    token = site.token_of(user)
    body = {
        "kind": "command",
        "entry": {"argv": ["sleep", "600"]},
        "environment": {"PATH": "/usr/bin:/bin"},
        "resources": {"gpu_memory": "1GiB", "cpus": 1, "mem": "64MiB"},
        "time": "8h",
        "workdir": "/",
    }
    status, job = site.pool("POST", "jobs", body, token=token)
    assert status == 201, job

    def show() -> dict[str, Any]:
        found: dict[str, Any] = site.pool("GET", f"jobs/{job['id']}", token=token)[1]
        return found

    until(lambda: show()["state"] == "running", "the job runs", site.tail)
    return show


def sessions_of(site: Site, user: str) -> list[Any]:
    return [lease for lease in site.leases() if (lease["user"], lease["kind"]) == (user, "session")]


def said(messages: Webhook, user: str) -> str:
    """Return all that has been said to somebody."""
    return "\n".join(text for text in messages.texts if user in text)


def test_a_session_ends_when_its_time_is_over_and_its_owner_hears_of_it_before(
    site: Site, messages: Webhook
) -> None:
    site.log_in("ada", {"slice": "1/2"})
    job = submit(site, "ada")
    until(lambda: "ends soon" in said(messages, "ada"), "ada is warned", site.tail)
    assert sessions_of(site, "ada")
    site.gone("ada")
    until(lambda: not sessions_of(site, "ada"), "what she had is free", site.tail)
    assert job()["state"] == "running"


def test_an_idle_session_is_ended_after_a_warning(site: Site, messages: Webhook) -> None:
    site.log_in("karl", {"slice": "1/2"})
    job = submit(site, "karl")
    ahead = 0.0

    def after(words: str) -> bool:
        """Let some seconds pass; say whether karl has heard the words."""
        nonlocal ahead
        ahead += 5
        stepped.step(site.home, ahead)
        return words in said(messages, "karl")

    until(lambda: after("is idle"), "karl is warned", site.tail)
    assert ahead >= 1800
    assert sessions_of(site, "karl")
    until(lambda: after("was ended"), "his server is ended", site.tail)
    site.gone("karl")
    until(lambda: not sessions_of(site, "karl"), "what he had is free", site.tail)
    assert job()["state"] == "running"
