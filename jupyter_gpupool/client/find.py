"""Where the pool is: the one that is named, or the user's own service, started when it is needed.

Owns: the order in which the environment decides, which token goes where, and what to do about a service of
another version or another pool. Never: how the service starts (see `jupyter_gpupool.client.start`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client import logins, start
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError, Refused, ServiceDown
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.transport import Connection

Tell = Callable[[str], None]


def find_pool(environ: Mapping[str, str] | None = None, *, progress: Tell | None = None) -> Connection:
    """Return a connection to the pool, after starting the user's own service where that is the pool.

    See `place` for where it is.

    Parameters
    ----------
    environ : mapping, optional
        The process's environment by default.
    progress : callable, optional
        Called with a line whenever there is something to wait for.

    Raises
    ------
    Refused
        When no pool is configured, a login has expired, or the service has another pool than asked for.
    ServiceDown
        When the service cannot be started.
    """
    environ = os.environ if environ is None else environ
    found = place(environ)
    if found.home is None:
        return found.connection(note=progress)
    home = found.home
    ensure_service(home, environ, progress or _say_nothing)
    return Connection(found.url, revive=lambda: ensure_service(home, environ, _say_nothing))


@dataclass(frozen=True)
class Place:
    """Where a pool is.

    Attributes
    ----------
    url
        See `jupyter_gpupool.client.address`.
    token
        What is sent to that address, and to no other.
    home
        The folder of a service that a client may start; None where somebody else runs it.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    home: Home | None = None

    def connection(self, **options: Any) -> Connection:
        """Return a connection to whatever is there; nothing is started."""
        return Connection(self.url, token=self.token, **options)


def place(environ: Mapping[str, str]) -> Place:
    """Return where the environment says that the pool is; nothing is asked or started.

    ``GPUPOOL_URL`` names a pool; ``GPUPOOL_SIMULATE`` asks for a simulated one of one's own;
    ``GPUPOOL_HUB_URL`` is the pool of the Hub that started this server; then comes the pool of the last
    ``jupyter gpupool login``, and at last the user's own service in ``GPUPOOL_HOME``.

    Raises
    ------
    Refused
        Under a Hub without a pool; when the login has expired.
    """
    url = environ.get("GPUPOOL_URL")
    if url:
        return Place(url, _token(url, environ))
    home = Home.of(environ)
    own = Place(home.url(), home=home)
    if environ.get("GPUPOOL_SIMULATE"):
        return own
    hub_url = environ.get("GPUPOOL_HUB_URL")
    if hub_url:
        return Place(hub_url, environ.get("JUPYTERHUB_API_TOKEN"))
    if environ.get("JUPYTERHUB_API_TOKEN"):
        raise Refused(
            "not_configured",
            "This server runs under a JupyterHub, but GPUPOOL_HUB_URL is not set: the Hub has no pool yet.",
            hint="Ask the administrator for one, or try a simulated pool with GPUPOOL_SIMULATE=1x2x8GiB.",
        )
    login = logins.stored(environ)
    return Place(login.url, login.valid_token()) if login else own


def _token(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the token for a pool that ``GPUPOOL_URL`` names: each goes only where it was made for."""
    if environ.get("GPUPOOL_TOKEN"):
        return environ["GPUPOOL_TOKEN"]  # a job's own
    if url == environ.get("GPUPOOL_HUB_URL"):
        return environ.get("JUPYTERHUB_API_TOKEN")
    login = logins.stored(environ)
    return login.valid_token() if login and login.url == url else None


def ensure_service(home: Home, environ: Mapping[str, str], tell: Tell) -> None:
    """Make sure that the user's own service runs, with this version and the pool asked for.

    Raises
    ------
    Refused, ServiceDown
        See `find_pool`.
    """
    home.make()
    found = greet(home)
    if found is None or found["version"] != __version__:
        with _room_needed(home), start.locked(home, tell):
            found = greet(home)  # another one may have started it while this one waited
            if found is not None and found["version"] != __version__:
                tell(
                    f"The pool's service is of version {found['version']}; starting {__version__} instead ..."
                )
                _retire(home)
                found = None
            if found is None:
                found = start.service(home, environ, lambda: greet(home), tell)
    check_pool(found.get("pool"), environ.get("GPUPOOL_SIMULATE"))


@contextmanager
def _room_needed(home: Home) -> Iterator[None]:
    """Turn the errors of a full, read-only or broken disk into one sentence."""
    try:
        yield
    except OSError as error:
        raise Refused(
            "unwritable_folder",
            f"The pool's service does not run, and cannot start in {home.path}: {error.strerror or error}.",
            hint="Make that right, or set GPUPOOL_HOME to another folder.",
        ) from error


def greet(home: Home) -> dict[str, Any] | None:
    """Ask the service who it is; None when nobody answers."""
    connection = Connection(home.url(), pauses=(), timeout=10.0)
    try:
        return Client(connection).whoami()
    except ServiceDown:
        return None
    finally:
        connection.close()


def check_pool(running: str | None, asked: str | None) -> None:
    """Refuse a running pool that is not the one asked for; nobody who asks for none minds which runs.

    Raises
    ------
    Refused
        With both pools in one sentence.
    """
    if asked and _normal(asked) != _normal(running or ""):
        runs = f"the simulated pool {running}" if running else "this machine's real cards"
        raise Refused(
            "other_pool",
            f"The service that runs has {runs}, and GPUPOOL_SIMULATE asks for {asked}.",
            hint="Stop it with: jupyter gpupool stop, or use another GPUPOOL_HOME.",
        )


def _retire(home: Home) -> None:
    """Ask a service to end and leave its jobs running for the next one, and wait until it has gone."""
    connection = Connection(home.url(), pauses=())
    try:
        Client(connection).shutdown(keep_jobs=True)
    except ServiceDown:
        pass
    except PoolError as error:
        raise ServiceDown(f"The service of another version does not end: {error}") from None
    finally:
        connection.close()
    start.wait_for_end(lambda: greet(home))


def _normal(pool: str) -> tuple[str, ...]:
    """Return the numbers of a pool such as 4x8x32GiB, sizes in MiB, so that equal pools compare equal."""
    found = re.fullmatch(r"\s*(\d+)x(\d+)x(\d+)\s*([GM])iB?\s*", pool)
    if found is None:
        return (pool.strip(),)
    nodes, cards, size, unit = found.groups()
    return nodes, cards, str(int(size) * (1024 if unit == "G" else 1))


def _say_nothing(line: str) -> None:
    """Tell nobody."""
