"""A few servers start at once; the others are told how many come before them."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.spawner import local
from jupyter_gpupool.spawner import turns as turns_module
from jupyter_gpupool.spawner.local import GpuPoolLocalSpawner
from jupyter_gpupool.spawner.turns import Turns
from tests.spawner.backends import PooledStub, StubBackend
from tests.spawner.conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def told(turns: Turns, heard: list[int], over: asyncio.Event) -> None:
    with turns.line_up() as place:
        async for before in place.until_mine():
            heard.append(before)  # noqa: PERF401 - each must be heard at once
        heard.append(0)
        await over.wait()


async def test_the_first_start_and_the_others_hear_how_many_come_before() -> None:
    turns, ends = Turns(2), [asyncio.Event() for _ in range(4)]
    heard: list[list[int]] = [[] for _ in ends]
    starts = [asyncio.create_task(told(turns, *one)) for one in zip(heard, ends, strict=True)]
    await asyncio.sleep(0)
    assert heard == [[0], [0], [2], [3]]
    ends[1].set()
    await starts[1]
    await asyncio.sleep(0)
    assert heard == [[0], [0], [2, 0], [3, 2]]
    starts[2].cancel()
    await asyncio.wait([starts[2]])
    await asyncio.sleep(0)
    assert heard[3] == [3, 2, 0]
    for end in ends:
        end.set()
    await asyncio.gather(*starts, return_exceptions=True)


async def test_one_who_gives_up_in_the_line_holds_up_nobody() -> None:
    turns = Turns(1)
    with turns.line_up(), ExitStack() as stack:
        stack.enter_context(turns.line_up())
        last = stack.enter_context(turns.line_up())
        before = aiter(last.until_mine())
        assert await anext(before) == 2
        stack.pop_all().close()


async def test_without_a_limit_nobody_waits() -> None:
    turns = Turns()
    with turns.line_up(), turns.line_up() as second:
        assert [before async for before in second.until_mine()] == []


async def test_a_hub_has_one_line() -> None:
    settings: dict[str, Any] = {}
    assert Turns.of(2, settings) is Turns.of(2, settings)


async def one_starts_and_one_waits(site: Site, stub: type[StubBackend]) -> tuple[Any, Any]:
    """Two users with their leases; the host starts only one server at once."""
    site.settings["slow_spawn_timeout"] = 0.05
    stub.hangs = True
    first, second = site.user("vision"), site.user("vision")
    assert (await site.start(first, {}))[0] == 202
    await site.until(lambda: stub.starts)
    assert (await site.start(second, {}))[0] == 202
    await site.until(lambda: "before yours" in str(second.spawners[""]._news._latest))
    return first, second


@pytest.fixture
def _one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PooledStub, "turns", Turns(1))


@pytest.mark.usefixtures("_one_at_once")
async def test_a_login_waits_for_its_turn_and_is_told(site: Site, stub: type[StubBackend]) -> None:
    first, second = await one_starts_and_one_waits(site, stub)
    latest = second.spawners[""]._news._latest
    assert latest["message"] == "Your place is ready; 1 server starts before yours."
    assert len(site.pool.live) == 2
    assert len(stub.starts) == 1
    stub.hangs = False
    await site.api(first, "DELETE")
    assert (await site.settled(second)).ready
    assert len(stub.starts) == 2


@pytest.mark.usefixtures("_one_at_once")
async def test_a_login_that_is_stopped_in_the_line_leaves_no_lease(
    site: Site, stub: type[StubBackend]
) -> None:
    _, second = await one_starts_and_one_waits(site, stub)
    await site.api(second, "DELETE")
    await site.settled(second)
    assert len(site.pool.live) == 1
    assert stub.stops == []


@pytest.mark.usefixtures("_one_at_once")
async def test_a_line_that_does_not_move_is_one_sentence(
    site: Site, stub: type[StubBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    await one_starts_and_one_waits(site, stub)
    monkeypatch.setattr(turns_module, "TURN_S", 0)
    site.settings["slow_spawn_timeout"] = 10
    third = site.user("vision")
    status, body = await site.start(third, {})
    assert status == 503
    assert "not your server's turn" in json.loads(body)["message"]
    await site.settled(third)
    assert len(site.pool.live) == 2


async def test_a_server_of_another_python_is_started_as_the_site_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.shutil, "which", lambda _name: str(Path(sys.executable).parent / "its-own"))
    assert "jupyter_gpupool.server.singleuser" in GpuPoolLocalSpawner().cmd
    monkeypatch.setattr(local.shutil, "which", lambda _name: str(tmp_path / "jupyterhub-singleuser"))
    assert GpuPoolLocalSpawner().cmd == ["jupyterhub-singleuser"]
