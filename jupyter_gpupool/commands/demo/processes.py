"""The processes of a demo: started, waited for, ended.

Owns: ports, patience, and that nothing the demo started is left. Never: what the processes are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from jupyter_gpupool.client.errors import Refused

START_TIMEOUT_S = 120
END_TIMEOUT_S = 30
PORTS_TRIED = 50


def choose_port(asked: int | None, first: int) -> int:
    """Return a free port: the one asked for, or the first free one from `first` on.

    Raises
    ------
    Refused
        When the port that was asked for is taken.
    """
    if asked is not None and not 0 < asked < 65536:
        raise Refused("demo", f"Port {asked} is not a port: use a number from 1 to 65535.")
    start = first if asked is None else asked
    tried = range(start, min(start + PORTS_TRIED, 65536))
    free = next(filter(is_free, tried), None)
    if free is None:
        raise Refused(
            "demo", f"No port from {tried.start} to {tried.stop - 1} is free. Choose one with --port."
        )
    if asked is not None and free != asked:
        raise Refused(
            "demo", f"Port {asked} is in use by another program. Port {free} is free: --port {free}."
        )
    return free


def is_free(port: int) -> bool:
    """Whether `port` of the loopback interface can be bound now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def environment(home: Path) -> dict[str, str]:
    """Return the environment of the demo's processes: one pool, and this interpreter's commands first."""
    bin_folder = str(Path(sys.executable).parent)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("GPUPOOL_", "JUPYTERHUB_"))
    }
    return {
        **kept,
        "GPUPOOL_HOME": str(home),
        "PATH": bin_folder + os.pathsep + os.environ.get("PATH", os.defpath),
    }


@contextlib.contextmanager
def running(
    command: list[str], environ: dict[str, str], log: Path, ready: Callable[[], bool], what: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process from when it is `ready` to the end of the ``with``.

    Raises
    ------
    Refused
        It ended first, or took too long; its last lines are in the sentence.
    """
    process = begin(command, environ, log)
    try:
        wait_until(ready, process, log, what)
        yield process
    finally:
        end(process)


@contextlib.contextmanager
def until_interrupted() -> Iterator[None]:
    """Say at Ctrl-C that the end has begun: it takes a few seconds."""
    try:
        yield
    except KeyboardInterrupt:
        say("\nEnding the demo ...")
        raise


def begin(command: list[str], environ: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process that a Ctrl-C in this terminal does not reach; what it says is added to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=environ,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, what: str) -> None:
    """Wait until `ready()`; a process that ends first, or takes too long, is an error with its last lines."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
            raise Refused("demo", f"{what} did not start. The last lines of {log}:\n{tail}")
        time.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that the demo started, with patience first."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def serves(url: str) -> bool:
    """Whether an HTTP server answers at `url`."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)
