"""The Hub's way to the service: who is trusted with the token, and what each failure says."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from aiohttp import web

from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.spawner import pool as pool_module
from jupyter_gpupool.spawner.pool import Pool, Unusable
from tests.spawner.backends import StubBackend
from tests.spawner.conftest import Site
from tests.spawner.scripted_pool import TOKEN, error

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_down_is_one_sentence(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "PAUSES", (0.01,))
    await site.pool.stop()
    user = site.user("vision")
    status, body = await site.start(user, {})
    assert status == 503
    message = json.loads(body)["message"]
    assert message.startswith("The GPU pool's service does not answer (")
    assert "Traceback" not in message
    async with await site.browser(user) as browser:
        page = await (await browser.get(f"{site.url}/spawn/{user.name}")).text()
    assert "The GPU pool&#39;s service does not answer" in page


async def test_a_request_outlives_a_restart_of_the_service(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "PAUSES", (0.02,) * 500)
    await site.pool.stop()
    user = site.user("vision")
    start = asyncio.create_task(site.start(user, {}))
    await asyncio.sleep(0.05)
    await site.pool.start()
    assert (await start)[0] == 201


async def test_another_version_is_one_sentence(site: Site) -> None:
    site.pool.version = "9.1.0"
    status, body = await site.start(site.user("vision"), {})
    assert status == 503
    assert "version 9.1.0" in json.loads(body)["message"]


async def test_another_hub_is_one_sentence(site: Site) -> None:
    site.configure(pool_token="another-hub")
    status, body = await site.start(site.user("vision"), {})
    assert status == 503
    assert "does not accept this Hub's spawner" in json.loads(body)["message"]
    assert "another-hub" not in body


async def test_a_service_that_cannot_open_says_why(site: Site) -> None:
    site.pool.refusals.append((503, error("degraded", "The policy has no groups.", hint="Mend line 3.")))
    status, body = await site.start(site.user("vision"), {})
    assert (status, json.loads(body)["message"]) == (503, "The policy has no groups. Mend line 3.")


async def test_a_service_that_is_opening_is_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "PAUSES", (0, 0))
    site.pool.refusals += [(503, error("not_open", "The pool's service is starting."))] * 2
    assert (await site.start(site.user("vision"), {}))[0] == 201


@pytest.mark.parametrize("reply", [[], {"lease": None}, {"lease": {}}, {"lease": {"id": 1, "state": "held"}}])
async def test_an_answer_that_nobody_understands_is_no_error_of_the_hub(site: Site, reply: object) -> None:
    site.pool.refusals.append((201, reply))  # type: ignore[arg-type]
    status, body = await site.start(site.user("vision"), {})
    assert status == 503
    assert "Traceback" not in body


async def serve(path: Path, seen: list[str | None]) -> web.AppRunner:
    async def note(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", note)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    return runner


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave a socket to another account")
async def test_no_token_for_a_socket_that_somebody_else_made(site: Site) -> None:
    seen: list[str | None] = []
    path = site.pool.path.parent / "other.sock"
    runner = await serve(path, seen)
    try:
        os.chown(path, 12345, 12345)
        with pytest.raises(PoolError, match="belongs to uid 12345"):
            await Pool(f"unix:{path}", TOKEN, pauses=()).look(1)
    finally:
        await runner.cleanup()
    assert seen == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can serve as another account")
async def test_no_token_for_another_accounts_process(site: Site) -> None:
    path = site.pool.path.parent / "squatted.sock"
    ready, word = os.pipe()
    child = os.fork()
    if child == 0:
        import socket

        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        os.setresuid(12345, 12345, 12345)
        listener.listen()  # the kernel remembers who listened
        os.write(word, b".")
        listener.accept()[0].recv(1)
        os._exit(0)
    try:
        os.read(ready, 1)
        with pytest.raises(Refused, match="served by uid 12345"):
            await Pool(f"unix:{path}", TOKEN, pauses=()).look(1)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(word)


async def test_giving_back_what_is_over_is_no_error(site: Site) -> None:
    await Pool(site.pool.url, TOKEN).give_back(4711)


async def test_plain_http_to_another_machine_is_refused() -> None:
    with pytest.raises(PoolError, match="plain http"):
        await Pool("http://pool.example.org/services/gpupool", TOKEN).look(1)


async def test_a_connection_that_breaks_is_unusable(site: Site) -> None:
    path = site.pool.path.parent / "broken.sock"
    server = await asyncio.start_unix_server(lambda _reader, writer: writer.close(), path)
    try:
        with pytest.raises(Unusable, match="does not answer"):
            await Pool(f"unix:{path}", TOKEN, pauses=()).look(1)
    finally:
        server.close()


async def test_choices_that_cannot_be_shown_leave_the_page_standing(
    site: Site, stub: type[StubBackend]
) -> None:
    site.pool.choices = {"groups": [{"name": "x"}]}
    user = site.user("vision")
    async with await site.browser(user) as browser:
        reply = await browser.get(f"{site.url}/spawn/{user.name}")
        page = await reply.text()
    assert reply.status == 200
    assert "does not understand" in page
