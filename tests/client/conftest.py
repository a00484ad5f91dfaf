"""A small service over a Unix socket, and the interpreters that the client must run in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.transport import Connection
from tests.faces.unix import Answer, UnixService

BARE = ("python3.9", "/usr/bin/python3")


class FakeService(UnixService):
    """Answers by `answer`, which a test puts in its place, and remembers every call."""

    reply = Answer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a private folder with a short path, fit for sockets."""
    path = tmp_path / "s"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def service(folder: Path) -> Iterator[FakeService]:
    server = FakeService(folder / "service.sock")
    yield server
    server.end()


@pytest.fixture
def naps() -> list[float]:
    """Return the pauses that a connection made instead of sleeping."""
    return []


@pytest.fixture
def connection(service: FakeService, naps: list[float]) -> Iterator[Connection]:
    made = Connection(service.url, sleep=naps.append)
    yield made
    made.close()


@pytest.fixture
def client(connection: Connection) -> Client:
    return Client(connection)


@pytest.fixture(params=BARE)
def bare_python(request: pytest.FixtureRequest) -> str:
    """Return a Python that has none of the package's dependencies; not every machine can have each."""
    found = find_python(request.param)
    if found is None:
        pytest.skip(f"{request.param} was not found (neither on PATH nor by pyenv)")
    return found


def find_python(name: str) -> str | None:
    """Return an interpreter by name: on PATH, or among pyenv's versions."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    version = name.rpartition("python")[2]
    try:
        by_pyenv = sorted(map(str, pyenv.glob(f"versions/{version}*/bin/{name}"))) if version else []
    except PermissionError:  # another account's
        by_pyenv = []
    for path in (*by_pyenv, shutil.which(name)):
        if path and os.access(path, os.X_OK):
            return path
    return None
