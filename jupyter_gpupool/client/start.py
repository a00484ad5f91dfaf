"""Starting the user's own service: once, whoever asks, with an interpreter that can run it.

Owns: the lock, the child process, and waiting until the service answers. Never: whether it should run.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Callable

from jupyter_gpupool.client.enable import recorded_python
from jupyter_gpupool.client.environment import belongs_to_session
from jupyter_gpupool.client.errors import ServiceDown
from jupyter_gpupool.client.home import Home

NEEDED = ("tornado", "pydantic", "sqlalchemy", "alembic", "yaml")
SERVICE_PYTHON = (3, 11)
NOT_ITS_OWN = tuple(
    f"GPUPOOL_{name}"
    for name in ("JOB_", "LEASE", "OUT_", "CODE_", "CHECKPOINT_", "ATTEMPT", "URL", "HUB_", "TOKEN")
)
START_TIMEOUT = 60.0  # seconds; a cold disk is slow
END_TIMEOUT = 30.0
LOOK_EVERY = 0.05
TELL_AFTER = 1.0

Greet = Callable[[], "dict[str, Any] | None"]
Tell = Callable[[str], None]


@contextmanager
def locked(home: Home, tell: Tell, timeout: float = START_TIMEOUT) -> Iterator[None]:
    """Hold the folder's lock for starting: of two labs, one starts the service and the other one waits.

    Raises
    ------
    ServiceDown
        When another process holds it for too long.
    """
    import fcntl

    descriptor = os.open(home.run / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline, told = time.monotonic() + timeout, False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ServiceDown(
                        f"Another process has been starting the pool's service for {timeout:g} s.",
                        hint=f"Look at {home.path / 'service.log'}.",
                    ) from None
                if not told:
                    tell("Another process is starting the pool's service ...")
                    told = True
                time.sleep(LOOK_EVERY)
        yield
    finally:
        os.close(descriptor)


def service(home: Home, environ: Mapping[str, str], greet: Greet, tell: Tell) -> dict[str, Any]:
    """Start the service and return its first greeting.

    Raises
    ------
    ServiceDown
        When no interpreter can run it, or it ends or stays silent; its last words are in the sentence.
    """
    began = time.monotonic()
    child = subprocess.Popen(
        [service_python(home), "-m", "jupyter_gpupool.app", "serve", "--background"],
        env=service_environment(home, environ),
        cwd=home.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,  # not a file: the disk may be full
        start_new_session=True,
        umask=0o077,
    )
    assert child.stderr is not None
    told = False
    while time.monotonic() < began + START_TIMEOUT:
        found = greet()
        if found is not None:
            child.stderr.close()
            child.poll()
            return found
        if child.poll():
            raise ServiceDown(f"The pool's service did not start: {_last_words(child)}")
        if not told and time.monotonic() > began + TELL_AFTER:
            tell("Starting the pool's service ...")
            told = True
        time.sleep(LOOK_EVERY)
    raise ServiceDown(
        f"The pool's service has not answered {START_TIMEOUT:g} s after its start.",
        hint=f"Look at {home.path / 'service.log'}.",
    )


def wait_for_end(greet: Greet, timeout: float = END_TIMEOUT) -> None:
    """Wait until the service has gone.

    Raises
    ------
    ServiceDown
        When it still answers after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while greet() is not None:
        if time.monotonic() > deadline:
            raise ServiceDown(f"The service of another version has not ended in {timeout:g} s.")
        time.sleep(LOOK_EVERY)


def service_python(home: Home) -> str:
    """Return an interpreter that can run the service: this one, or the one recorded in the home.

    Raises
    ------
    ServiceDown
        When there is neither.
    """
    if sys.version_info >= SERVICE_PYTHON and all(map(importlib.util.find_spec, NEEDED)):
        return sys.executable
    recorded = recorded_python(home)
    if recorded is None:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise ServiceDown(
            f"The pool's service does not run, and this Python {version} cannot start it.",
            hint="Start it where jupyter-gpupool is installed: jupyter gpupool serve --background",
        )
    return recorded


def service_environment(home: Home, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the service's environment: not the session's, since it outlives the session."""
    kept = {name: value for name, value in environ.items() if not belongs_to_session(name, value)}
    given = {name: value for name, value in environ.items() if name.startswith("GPUPOOL_")}
    given = {name: value for name, value in given.items() if not name.startswith(NOT_ITS_OWN)}
    if "CUDA_VISIBLE_DEVICES" in environ and not environ.get("GPUPOOL_LEASE_ID"):
        given["CUDA_VISIBLE_DEVICES"] = environ["CUDA_VISIBLE_DEVICES"]
    return {**kept, **given, "GPUPOOL_HOME": str(home.path)}


def _last_words(child: subprocess.Popen[bytes]) -> str:
    said = child.communicate()[1].decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(said) if line.strip()), "")
    return last.removeprefix("jupyter gpupool serve: ") or f"exit code {child.returncode}."
