"""A login that waits: what it is told, how it goes on, and every way in which it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from jupyter_gpupool.client.text import Clock
from jupyter_gpupool.spawner import pool as pool_module
from jupyter_gpupool.spawner import queue as queue_module
from jupyter_gpupool.spawner.news import News, plain_event, waiting_event
from jupyter_gpupool.spawner.queue import most_waiting
from jupyter_gpupool.spawner.turns import TURN_S
from tests.spawner.backends import StubBackend
from tests.spawner.conftest import Site
from tests.spawner.scripted_pool import error

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def _no_patience(site: Site) -> None:
    """Answer a start at once, also if it waits."""
    site.settings["slow_spawn_timeout"] = 0.05


async def wait_in_queue(site: Site, options: Any = None) -> Any:
    """A user whose login waits."""
    site.pool.free = False
    user = site.user("vision")
    assert (await site.start(user, options or {"slice": "1/8"}))[0] == 202
    await site.until(lambda: user.spawners[""]._news._latest and site.pool.live)
    return user


async def progress_of(site: Site, user: Any) -> AsyncIterator[dict[str, Any]]:
    """The Hub's own stream, as the page reads it."""
    headers = {"Authorization": f"token {user.new_api_token()}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{site.url}/api/users/{user.name}/server/progress") as reply,
    ):
        async for line in reply.content:
            if line.startswith(b"data:"):
                yield json.loads(line[5:])


async def test_it_is_told_its_place_and_what_it_waits_for_until_it_starts(site: Site) -> None:
    user = await wait_in_queue(site)
    said: list[str] = []
    async for event in progress_of(site, user):
        said.append(event["message"])
        if "number 3" in event["message"]:
            assert "&lt;bob&gt;&#x27;s server" in event["html_message"]
            assert "<bob>" not in event["html_message"]
            site.pool.move_up(1)
        if "number 1" in event["message"]:
            site.pool.grant()
    places = [text.partition(" in the queue")[0] for text in said if "in the queue" in text]
    assert places == ["You are number 3", "You are number 1"]
    assert "Your place is ready; the server is starting." in said
    assert said[-1].startswith("Server ready at")
    assert site.pool.withdrawn == []


async def test_its_user_stops_it(site: Site, stub: type[StubBackend]) -> None:
    user = await wait_in_queue(site)
    assert (await site.api(user, "DELETE"))[0] in (202, 204)
    await site.settled(user)
    assert site.pool.live == []
    assert stub.starts == []
    site.pool.free = True
    assert (await site.start(user, {}))[0] in (201, 202)
    assert (await site.settled(user)).ready


async def test_it_waits_while_the_service_restarts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "PAUSES", (0.01,))
    monkeypatch.setattr(queue_module, "AGAIN_S", 0.05)
    user = await wait_in_queue(site)
    await site.pool.stop()
    await site.until(lambda: "Your place in the queue is kept" in user.spawners[""]._news._latest["message"])
    await site.pool.start()
    site.pool.grant()
    spawner = await site.settled(user)
    assert spawner.ready
    assert len(site.pool.requests) == 1


async def test_it_gives_up_when_the_service_stays_silent(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "PAUSES", ())
    monkeypatch.setattr(queue_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(queue_module, "SILENCE_S", 0.0)
    user = await wait_in_queue(site)
    await site.pool.stop()
    assert "does not answer" in await failure(site, user)


async def failure(site: Site, user: Any) -> str:
    """What a failed start says."""
    spawner = await site.settled(user)
    return str(spawner._spawn_future.exception().message)


async def test_it_is_refused_when_the_pool_ends_it(site: Site, stub: type[StubBackend]) -> None:
    user = await wait_in_queue(site)
    site.pool.end("vision was taken out of the policy.")
    assert await failure(site, user) == (
        "vision was taken out of the policy. Start the server again to ask anew."
    )
    assert stub.starts == []


async def test_it_waits_no_longer_than_the_site_allows(site: Site) -> None:
    site.configure(queue_timeout=0)
    site.settings["slow_spawn_timeout"] = 10
    site.pool.free = False
    user = site.user("vision")
    status, body = await site.start(user, {"slice": "1/8"})
    assert status == 409
    assert "Nothing became free within 0 s" in json.loads(body)["message"]
    assert site.pool.live == []


async def test_waiting_does_not_count_against_the_start_timeout(site: Site, stub: type[StubBackend]) -> None:
    site.settings["config"].PooledStub.start_timeout = 7
    user = await wait_in_queue(site)
    assert user.spawners[""].start_timeout == 7 + 12 * 3600 + TURN_S
    site.pool.grant()
    spawner = await site.settled(user)
    assert spawner.ready
    assert spawner.start_timeout == 7


async def test_the_sites_start_timeout_holds_for_the_backend(site: Site, stub: type[StubBackend]) -> None:
    site.settings["config"].PooledStub.start_timeout = 0
    site.settings["slow_spawn_timeout"] = 10
    stub.hangs = True
    user = site.user("vision")
    status, body = await site.start(user, {})
    assert status == 503
    assert json.loads(body)["message"].startswith("Your server was not up within 0 s")
    await site.settled(user)
    assert site.pool.live == []


async def test_cpu_only_instead_of_waiting(site: Site, stub: type[StubBackend]) -> None:
    site.pool.free = False
    user = site.user("vision")
    status, _ = await site.start(user, {"slice": "1/8", "group": "vision", "when_full": "cpu"})
    assert status in (201, 202)
    await site.settled(user)
    first, second = site.pool.requests
    assert (first["slice"], first["wait"]) == ("1/8", False)
    assert (second["slice"], second["group"]) == ("0", "vision")
    assert "CUDA_VISIBLE_DEVICES" not in stub.starts[0]


async def test_cpu_only_is_no_way_around_a_limit(site: Site) -> None:
    site.settings["slow_spawn_timeout"] = 10
    site.pool.refusals.append((409, error("user_limit", "You have 2 of 2 servers.")))
    user = site.user("vision")
    status, body = await site.start(user, {"slice": "1/8", "when_full": "cpu"})
    assert (status, json.loads(body)["message"]) == (409, "You have 2 of 2 servers.")
    assert len(site.pool.requests) == 1


async def test_some_of_the_hubs_starts_are_left_to_logins_that_need_not_wait(site: Site) -> None:
    site.settings["concurrent_spawn_limit"] = 3
    await wait_in_queue(site)
    await wait_in_queue(site)
    user = site.user("vision")
    site.settings["slow_spawn_timeout"] = 10
    status, body = await site.start(user, {})
    assert status == 409
    assert "2 logins wait for a GPU already, and at most 2 may" in json.loads(body)["message"]
    await site.settled(user)
    assert len(site.pool.live) == 2
    site.pool.free = True
    assert (await site.start(user, {}))[0] == 201


@pytest.mark.parametrize(("limit", "waiting"), [(0, None), (1, 0), (2, 1), (10, 8), (100, 80)])
async def test_room_for_others(limit: int, waiting: int | None) -> None:
    assert most_waiting(limit) == waiting


async def test_the_hub_goes_down_with_its_servers_and_the_place_is_kept(site: Site) -> None:
    user = await wait_in_queue(site)
    await user.stop("")
    assert site.pool.withdrawn == []
    assert len(site.pool.live) == 1


async def test_the_hub_goes_down_alone_and_the_place_is_kept(site: Site) -> None:
    user = await wait_in_queue(site)
    future = user.spawners[""]._spawn_future
    future.cancel()
    await asyncio.wait([future])
    assert site.pool.withdrawn == []


async def test_the_expected_start_is_said() -> None:
    clock = Clock(now=1_800_000_000)
    event = waiting_event(
        {
            "position": 2,
            "message": "first free at noon",
            "expected_start": "2027-01-15T08:30:00Z",
            "kind": "estimate",
        },
        clock,
    )
    assert event["message"].startswith(
        "You are number 2 in the queue. First free at noon. Expected start: about"
    )
    assert "in 30 min" in event["message"]


async def test_words_are_no_markup() -> None:
    event = plain_event(5, "<a>", "\ud800", "")
    assert event["html_message"] == "<strong>&lt;a&gt;</strong><br>\\ud800"


async def test_who_follows_late_hears_the_latest_and_the_end() -> None:
    news = News()
    news.say(plain_event(1, "old"))
    news.say(plain_event(2, "new"))

    async def follow() -> list[str]:
        return [event["message"] async for event in news.follow()]

    listeners = [asyncio.create_task(follow()) for _ in range(2)]
    await asyncio.sleep(0)
    news.say(plain_event(3, "last"))
    news.end()
    assert await asyncio.gather(*listeners) == [["new", "last"]] * 2


async def test_a_place_that_is_not_known_at_once_is_told_soon(site: Site) -> None:
    site.pool.position = 0
    user = await wait_in_queue(site)
    assert "number" not in user.spawners[""]._news._latest["message"]
    site.pool.plan_silently(4)
    await site.until(lambda: "number 4" in user.spawners[""]._news._latest["message"])
