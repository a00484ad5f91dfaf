"""The service that starts, stops, crashes, or is not there."""

from __future__ import annotations

import asyncio
import json
import os
import threading

import pytest

from jupyter_gpupool.client.errors import PoolError, ServiceDown
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.server.gateway import Gateway, NotYours, Starting


@pytest.fixture
def connection(tmp_path):
    return Connection(f"unix:{tmp_path}/run/service.sock", pauses=())


async def test_a_service_that_is_down_is_503_in_one_line(ask, service):
    service.crash()
    answer = await ask("quota")
    assert answer.code == 503
    error = json.loads(answer.body)["error"]
    assert error["code"] == "service_down"
    assert "does not answer" in error["message"]
    assert "\n" not in error["message"]
    assert set(error) == {"code", "message", "used", "limit", "unit", "retry_at", "hint"}


async def test_a_service_that_is_down_does_not_fill_the_log(ask, service, jp_serverapp, caplog):
    service.crash()
    with caplog.at_level("INFO"):
        jp_serverapp.log.propagate = True
        await ask("quota")
    assert [record for record in caplog.records if "503" in record.getMessage()] == []


async def test_a_service_that_was_stopped_says_how_to_start_it(ask, service, found):
    service.says("GET quota", {})
    await ask("quota")
    service.stop()
    answer = await ask("quota")
    assert answer.code == 503
    error = json.loads(answer.body)["error"]
    assert (error["code"], error["hint"]) == ("not_running", "Start it with: jupyter gpupool serve")
    assert found == ["find"]


async def test_a_glance_starts_nothing_but_sees_what_runs(ask, service, found, monkeypatch, tmp_path):
    service.says("GET leases", {"leases": []})
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path / "nothing"))
    answer = await ask("leases", params={"start": "no"})
    assert json.loads(answer.body)["error"]["code"] == "not_running"
    assert (found, service.asked) == ([], [])
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
    assert (await ask("leases", params={"start": "no"})).code == 200
    assert [call.key for call in service.asked] == ["GET leases"]


async def test_start_finds_it_again(ask, service, found):
    service.says("GET quota", {})
    await ask("quota")
    service.stop()
    assert (await ask("start", "POST")).code == 204
    assert found == ["find", "find"]


async def test_start_of_what_runs_does_nothing(ask, service, found):
    assert (await ask("start", "POST")).code == 204
    assert (await ask("start", "POST")).code == 204
    assert found == ["find"]


async def test_polling_never_starts_what_was_stopped_and_sees_what_others_start(service, connection):
    found = []
    gateway = Gateway(lambda: found.append(1) or connection)
    service.says("GET quota", {})
    assert (await gateway.request("GET", "quota")).status == 200
    service.stop()
    with pytest.raises(ServiceDown, match="not running"):
        await gateway.request("GET", "quota")
    again = service.again()
    again.says("GET quota", {})
    assert (await gateway.request("GET", "quota")).status == 200
    again.stop()
    assert found == [1]


async def test_a_failed_start_is_not_repeated_by_polling(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path / "home"))
    tries = []

    def find():
        tries.append(1)
        raise PoolError("no_gpu", "No NVIDIA driver is installed here.")

    gateway = Gateway(find)
    for _ in range(3):
        with pytest.raises(PoolError, match="No NVIDIA driver"):
            await gateway.request("GET", "quota")
    assert tries == [1]
    with pytest.raises(PoolError, match="No NVIDIA driver"):
        await gateway.start()
    assert tries == [1, 1]


async def test_after_a_failed_start_a_service_that_others_started_is_found(
    service, connection, monkeypatch, tmp_path
):
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path / "home"))
    outcomes = [PoolError("no_gpu", "No NVIDIA driver is installed here."), connection]

    def find():
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    gateway = Gateway(find)
    with pytest.raises(PoolError, match="No NVIDIA driver"):
        await gateway.request("GET", "quota")
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
    service.says("GET quota", {})
    assert (await gateway.request("GET", "quota")).status == 200


async def test_a_service_that_takes_long_is_starting_and_then_there(service, connection):
    ready = threading.Event()
    found = []

    def find():
        found.append(1)
        ready.wait(10)
        return connection

    gateway = Gateway(find, patience=0.01)
    service.says("GET quota", {})
    for _ in range(2):
        with pytest.raises(Starting, match="is starting"):
            await gateway.request("GET", "quota")
    ready.set()
    reply = None
    while reply is None:
        try:
            reply = await gateway.request("GET", "quota")
        except Starting:
            await asyncio.sleep(0.01)
    assert reply.status == 200
    assert found == [1]


async def test_starting_is_shown_as_such(ask, service, monkeypatch):
    async def starting(self, method, path, *, may_start):
        raise Starting

    monkeypatch.setattr(Gateway, "request", starting)
    answer = await ask("quota")
    assert (answer.code, answer.headers["Retry-After"]) == (503, "1")
    assert json.loads(answer.body)["error"]["code"] == "starting"


async def test_a_slow_answer_does_not_hold_up_the_server(ask, service, jp_fetch):
    service.says("GET quota", {})
    await ask("quota")
    service.hold.clear()
    waiting = asyncio.ensure_future(ask("quota"))
    while len(service.asked) < 2:
        await asyncio.sleep(0.01)
    assert (await jp_fetch("api")).code == 200
    assert not waiting.done()
    service.hold.set()
    assert (await waiting).code == 200


# -- a pool that its Hub's administrator runs ----------------------------------------------------------


@pytest.fixture
def hubs(service, monkeypatch):
    """Let this server's environment name the service as its Hub's; no stand-in for the client."""
    url = f"{service.url}?uid={os.geteuid()}"
    monkeypatch.setenv("GPUPOOL_URL", url)
    monkeypatch.setenv("GPUPOOL_HUB_URL", url)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "t0ken")
    return Gateway()


async def test_a_hubs_pool_is_asked_with_the_servers_token(service, hubs):
    service.says("GET quota", {})
    assert (await hubs.request("GET", "quota")).status == 200
    assert service.calls[0].headers["Authorization"] == "token t0ken"
    assert not hubs.startable


async def test_a_hubs_pool_that_is_down_is_never_started_from_here(service, hubs, tmp_path):
    service.stop()
    with pytest.raises(ServiceDown, match=r"does not answer.*Your Hub's administrator runs it"):
        await hubs.request("GET", "quota")
    with pytest.raises(NotYours, match="only they can start it"):
        await hubs.start()
    again = service.again()
    again.says("GET quota", {})
    assert (await hubs.request("GET", "quota")).status == 200
    again.stop()
    assert not (tmp_path / "home").exists()


async def test_start_of_a_hubs_pool_is_refused_in_a_sentence(ask, service, hubs):
    answer = await ask("start", "POST")
    refusal = json.loads(answer.body)
    assert (answer.code, refusal["error"]["code"], refusal["startable"]) == (403, "not_yours", False)


async def test_whether_the_user_can_start_the_service_is_said_beside_what_is_wrong(ask, service):
    service.crash()
    assert json.loads((await ask("quota")).body)["startable"] is True


async def test_a_server_without_a_pool_of_its_hubs_says_so_and_finds_one_that_comes(service, monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "t0ken")
    gateway = Gateway()
    with pytest.raises(PoolError, match="the Hub has no pool yet"):
        await gateway.request("GET", "quota")
    monkeypatch.setenv("GPUPOOL_HUB_URL", f"{service.url}?uid={os.geteuid()}")
    service.says("GET quota", {})
    assert (await gateway.request("GET", "quota")).status == 200
