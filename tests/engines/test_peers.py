"""The launcher listens to its own user only, and to no client longer than it makes sense."""

from __future__ import annotations

import asyncio
import json
import os
import socket

import pytest

pytestmark = pytest.mark.asyncio


def _connect(home) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    directory = os.open(home / "run", os.O_RDONLY)
    try:
        client.connect(f"/proc/self/fd/{directory}/launcher.sock")
    finally:
        os.close(directory)
    return client


async def test_socket_and_folder_are_for_the_owner(bench):
    assert (bench.home / "run" / "launcher.sock").stat().st_mode & 0o777 == 0o600
    assert (bench.home / "run").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_another_user_is_hung_up_on_even_when_the_folder_is_open(bench):
    (bench.home / "run").chmod(0o711)
    (bench.home / "run" / "launcher.sock").chmod(0o666)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir(bench.home / "run")
            os.setuid(65534)
            other = socket.socket(socket.AF_UNIX)
            other.connect("launcher.sock")
            status = 0 if other.recv(1) == b"" else 2
        finally:
            os._exit(status)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert await bench.engine.list() == []


async def test_nonsense_is_answered_and_hung_up_on(bench):
    with _connect(bench.home) as client, client.makefile("rwb") as stream:
        stream.readline()
        stream.write(b"nonsense\n")
        stream.flush()
        assert "one JSON object" in json.loads(await asyncio.to_thread(stream.readline))["error"]
        assert await asyncio.to_thread(stream.readline) == b""
    assert await bench.engine.list() == []


async def test_a_client_that_reads_nothing_holds_nobody_up(bench):
    with _connect(bench.home) as client:
        client.settimeout(1)
        request = b'{"id": 1, "op": "list"}\n' * 2000
        for _ in range(20):
            try:
                client.sendall(request)
            except (TimeoutError, ConnectionError):
                break
        assert (await bench.run(bench.spec("sh", "-c", "exit 4"))).exit_code == 4


async def test_a_home_whose_path_is_longer_than_a_socket_may_be(bench, tmp_path):
    from jupyter_gpupool.engines.local.engine import LocalEngine

    home = tmp_path.joinpath(*["a-rather-long-name"] * 8)
    engine = LocalEngine(home)
    await engine.open(lambda end: None)
    assert await engine.list() == []
    await engine.shutdown(True)
