"""A real pool of one's own: a service subprocess over simulated cards, gone at the end with all its jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.transport import Connection

SITE = "1x2x8GiB"


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user of the pool in `home`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUPOOL_")}
    return {**kept, "GPUPOOL_HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}


@contextmanager
def real_pool() -> Iterator[Path]:
    """Run a service for the length of a ``with``; yield its home."""
    home = Path(tempfile.mkdtemp(prefix="gpupool-real-"))
    log = home / "test.log"
    command = [sys.executable, "-m", "jupyter_gpupool.app", "serve", "--allow-root", "--simulate", SITE]
    with log.open("wb") as output:
        service = subprocess.Popen(command, env=environment(home), stdout=output, stderr=output)
    client = Client(Connection(f"unix:{home / 'run' / 'service.sock'}", pauses=()))
    try:
        _until_it_answers(client, service, log)
        yield home
        client.shutdown(keep_jobs=False)
        service.wait(60)
    finally:
        client.connection.close()
        if service.poll() is None:
            service.terminate()
            service.wait(60)
        shutil.rmtree(home, ignore_errors=True)


def end_jobs(home: Path) -> None:
    """End what still waits or runs in the pool, so that nothing of it holds up whoever uses it next."""
    client = Client(Connection(f"unix:{home / 'run' / 'service.sock'}", pauses=()))
    queue = client.queue()
    left = [job["id"] for job in (*queue["waiting"], *queue["running"])]
    for job in left:
        with suppress(PoolError):  # it may have ended by itself by now
            client.cancel(job)
    client.wait(left, timeout=60)
    client.connection.close()


def _until_it_answers(client: Client, service: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            client.whoami()
            return
        except PoolError:
            assert service.poll() is None, log.read_text()
            time.sleep(0.05)
    raise AssertionError(f"no answer: {log.read_text()}")
