"""The pool's events on the server's event bus: one stream, resumed, and never what keeps a server alive."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.server.gateway import Gateway
from jupyter_gpupool.server.live import PAUSES, SCHEMA_ID, Live
from tests.faces.unix import Answer

STREAM = {"Content-Type": "text/event-stream"}


def event(number: int, kind: str = "job") -> str:
    return f'id: {number}\nevent: {kind}\ndata: {{"{kind}": {number}}}\n\n'


class Said(SimpleQueue):
    """What the service says as events; None hangs up."""

    def chunks(self) -> Iterator[str]:
        yield ": hello\n\n"
        yield from iter(self.get, None)

    def answer(self) -> Answer:
        return Answer(chunks=self.chunks(), headers=STREAM)


@pytest.fixture
def streams(service) -> list[Said]:
    """Each stream that is asked for of the service, in order; they all end with it."""
    given: list[Said] = []
    plain = service.answer

    def answer(call):
        if call.key != "GET events":
            return plain(call)
        given.append(Said())
        return given[-1].answer()

    service.answer = answer
    service.says("GET quota", {})
    yield given
    for said in given:
        said.put(None)


@pytest.fixture
def connection(tmp_path):
    return Connection(f"unix:{tmp_path}/run/service.sock", pauses=())


async def until(reached) -> None:
    while not reached():
        await asyncio.sleep(0.01)


def listened(service) -> list[str | None]:
    """With which id each stream was asked for."""
    return [call.headers.get("Last-Event-ID") for call in service.calls if call.key == "GET events"]


async def test_events_reach_the_labs_socket(ask, streams, jp_ws_fetch, jp_serverapp):
    lab = await jp_ws_fetch("api", "events", "subscribe")
    await ask("quota")
    await until(lambda: streams)
    streams[0].put(event(7))
    came = json.loads(await lab.read_message())
    assert came["schema_id"] == SCHEMA_ID
    assert (came["kind"], came["data"]) == ("job", {"job": 7})
    lab.close()


async def test_one_stream_serves_all_who_look(ask, service, streams):
    for _ in range(3):
        await ask("quota")
    await until(lambda: streams)
    await ask("quota")
    assert listened(service) == [None]


async def test_nothing_is_opened_before_anybody_looks(jp_serverapp, service, found):
    await asyncio.sleep(0)
    assert (service.calls, found) == ([], [])


async def test_events_do_not_make_a_server_active(ask, streams, jp_serverapp):
    await ask("quota")
    await until(lambda: streams)
    before = jp_serverapp.web_app.last_activity()
    arrived = []

    async def listener(logger, schema_id, data):
        arrived.append(data)

    jp_serverapp.event_logger.add_listener(schema_id=SCHEMA_ID, listener=listener)
    streams[0].put(event(1))
    await until(lambda: arrived)
    assert jp_serverapp.web_app.last_activity() == before


class Listening:
    """A `Live` whose pauses are counted, not waited for."""

    def __init__(self, connection: Connection, monkeypatch) -> None:
        monkeypatch.setenv("GPUPOOL_HOME", "/nowhere")
        self.connection = connection
        self.emitted: list[tuple[str, dict]] = []
        self.pauses: list[float] = []
        self.gateway = Gateway(lambda: connection)
        self.live = Live(
            self.gateway.has_ended, lambda kind, data: self.emitted.append((kind, data)), sleep=self.sleep
        )

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        time.sleep(0.001)

    async def begin(self) -> None:
        await self.gateway.request("GET", "quota")
        self.live.begin(self.connection)


@pytest.fixture
def one(connection, monkeypatch) -> Listening:
    return Listening(connection, monkeypatch)


async def test_a_broken_stream_is_resumed_by_the_last_id(service, streams, one):
    await one.begin()
    await until(lambda: streams)
    streams[0].put(event(41))
    await until(lambda: one.emitted)
    streams[0].put(None)
    await until(lambda: len(streams) == 2)
    streams[1].put(event(42, "lease"))
    await until(lambda: len(one.emitted) == 4)
    assert one.emitted == [("job", {"job": 41}), ("lost", {}), ("found", {}), ("lease", {"lease": 42})]
    assert listened(service) == [None, "41"]


async def test_pauses_grow_while_a_crashed_service_is_away_and_it_is_lost_once(service, streams, one):
    await one.begin()
    await until(lambda: streams)
    service.crash()
    streams[0].put(None)
    await until(lambda: len(one.pauses) > len(PAUSES) + 1)
    assert one.pauses[: len(PAUSES) + 1] == [*PAUSES, PAUSES[-1]]
    assert one.emitted == [("lost", {})]
    one.live._listener.leave()


async def test_a_service_that_ended_on_purpose_is_not_waited_for_but_heard_again_later(service, streams, one):
    await one.begin()
    await until(lambda: streams)
    service.stop()
    streams[0].put(None)
    await until(lambda: one.emitted == [("lost", {})])
    await until(lambda: not one.live._listener.is_alive())
    assert one.pauses == []
    again = service.again()
    again.says("GET quota", {})
    later = Said()
    again.answers["GET events"] = later.answer()
    await one.begin()
    later.put(event(3))
    await until(lambda: ("job", {"job": 3}) in one.emitted)
    later.put(None)
    again.stop()


async def test_another_pool_is_listened_to_instead(service, streams, one, tmp_path):
    await one.begin()
    await until(lambda: streams)
    other = Connection(f"unix:{tmp_path}/run/service.sock", pauses=())
    one.live.begin(other)
    await until(lambda: len(streams) == 2)
    streams[0].put(event(1))
    streams[1].put(event(2))
    await until(lambda: one.emitted)
    assert one.emitted == [("job", {"job": 2})]
    await until(lambda: sum(thread.name == "gpupool-events" for thread in threading.enumerate()) == 1)
