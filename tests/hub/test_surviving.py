"""What goes on when a part of the site is killed, and what must not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from tests.hub.site import Site, request, until

pytestmark = [pytest.mark.requires_server("node"), pytest.mark.timeout(300)]

EIGHTH = {"slice": "1/8"}
LOOKS_OFTEN = """
from jupyterhub.services import service
class LooksOften(service._ServiceSpawner):
    poll_interval = 1
service._ServiceSpawner = LooksOften
"""
"""The Hub looks every half minute whether its services live, and has no option for that."""


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site(extra=LOOKS_OFTEN).start()


@pytest.fixture(autouse=True)
def _nobody_is_left(site: Site) -> Iterator[None]:
    yield
    site.end("ada")
    site.gone("ada")
    until(lambda: site.leases() == [], "every lease is free", site.tail)


def process_of(site: Site, *words: str) -> int:
    """Return the one process of the site whose command line holds all the words."""
    found = [pid for pid, command in site.processes().items() if all(word in command for word in words)]
    assert len(found) == 1, (words, site.processes())
    return found[0]


def server_of(site: Site, user: str) -> int:
    """Return the pid of a user's notebook server."""
    for pid in site.processes():
        if f"JUPYTERHUB_USER={user}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
            return pid
    raise AssertionError(f"{user} has no server")


def terminal(site: Site, user: str, command: str) -> None:
    """Run a command in the background of a terminal of the user's server."""
    token = site.token_of(user)
    _, reply = request("POST", f"{site.url}/user/{user}/api/terminals", {}, token=token)
    url = f"ws://127.0.0.1:{site.port}/user/{user}/terminals/websocket/{reply['name']}"

    async def type_it() -> None:
        headers = {"Authorization": f"token {token}"}
        socket = await websocket_connect(HTTPRequest(url, headers=headers))
        await socket.write_message(json.dumps(["stdin", command + "\r"]))
        await asyncio.sleep(1)
        socket.close()

    asyncio.run(type_it())


def test_what_a_user_left_behind_ends_with_the_session(site: Site) -> None:
    site.log_in("ada", EIGHTH)
    mark = site.folder / "left"
    terminal(site, "ada", f"setsid nohup sh -c 'echo $$ > {mark}; exec sleep 600' >/dev/null 2>&1 &")
    until(lambda: mark.exists() and mark.read_text().strip(), "the process runs", site.tail)
    left = int(mark.read_text())
    site.end("ada")
    until(lambda: not Path(f"/proc/{left}").exists(), "it ends with the session", site.tail)
    until(lambda: site.leases() == [], "the lease is free", site.tail)


def test_a_server_that_dies_alone_frees_its_slice(site: Site) -> None:
    site.log_in("ada", EIGHTH)
    os.kill(server_of(site, "ada"), signal.SIGKILL)
    until(lambda: site.leases() == [], "the lease is free", site.tail)
    until(lambda: not (site.server("ada") or {}).get("ready"), "the Hub notices", site.tail)
    site.log_in("ada", EIGHTH)
    assert len(site.leases()) == 1


def test_servers_and_jobs_outlive_a_hub_that_is_killed(site: Site) -> None:
    site.log_in("ada", EIGHTH)
    token = site.token_of("ada", "access:services!service=gpupool", "custom:gpupool:submit")
    body = {
        "kind": "command",
        "entry": {"argv": ["sh", "-c", "sleep 8; echo done"]},
        "resources": {"gpus": 1},
        "time": "5m",
    }
    status, job = site.pool("POST", "jobs", body, token=token)
    assert status == 201, job
    pid = server_of(site, "ada")
    site.kill()
    assert Path(f"/proc/{pid}").exists()
    time.sleep(0.5)
    site.start()
    found = site.ready("ada")
    assert found["ready"]
    assert server_of(site, "ada") == pid
    assert len([lease for lease in site.leases() if lease["kind"] == "session"]) == 1

    def ended() -> bool:
        status, found = site.pool("GET", f"jobs/{job['id']}", token=token)
        return status == 200 and found["state"] == "completed"

    until(ended, "the job completes", site.tail)
    site.end("ada")
    until(lambda: site.leases() == [], "every lease is free", site.tail)
    assert not Path(f"/proc/{pid}").exists()


def test_the_service_comes_back_and_nothing_is_lost(site: Site) -> None:
    site.log_in("ada", EIGHTH)
    before = site.leases()
    service = json.loads((site.home / "run" / "service.json").read_text())["pid"]
    os.kill(service, signal.SIGKILL)
    assert (site.server("ada") or {}).get("ready")

    def is_back() -> bool:
        record = site.home / "run" / "service.json"
        return record.exists() and json.loads(record.read_text())["pid"] != service

    until(is_back, "the Hub starts the service again", site.tail, 90)
    until(lambda: site.leases() == before, "the lease is there", site.tail)
    site.end("ada")
    until(lambda: site.leases() == [], "the lease is free", site.tail)
