"""What the measurements share: a service of their own, quantiles, and the table."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NATIVE_PYTHON = "/usr/bin/python3"
API = "/services/gpupool/api/v1"


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure, what it should be, and what it is measured against."""

    name: str
    value: float
    unit: str
    goal: str = ""
    beside: str = ""
    ratio: float | None = None


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the sorted values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))]


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as an aligned table."""
    lines = [("what", "measured", "goal", "beside", "ratio")]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        lines.append((row.name, f"{row.value:,.2f} {row.unit}", row.goal, row.beside, ratio))
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )


def write(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as JSON."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=120)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Pool:
    """A service on a simulated pool, in a home of its own, and one kept-alive connection to it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.connection = _UnixConnection(str(home / "run" / "service.sock"))

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        self.connection.request(method, API + path, data, headers or {})
        reply = self.connection.getresponse()
        content = reply.read()
        if reply.status >= 400:
            raise RuntimeError(f"{method} {path}: {reply.status} {content[:300]!r}")
        return json.loads(content) if content.startswith((b"{", b"[")) else content

    def upload(self, source: str) -> str:
        """Store a snapshot with the one script main.py; return its digest."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            info = tarfile.TarInfo("main.py")
            info.size, info.mode = len(source.encode()), 0o644
            tar.addfile(info, io.BytesIO(source.encode()))
        content = buffer.getvalue()
        digest = hashlib.sha256(content).hexdigest()
        self.call("PUT", f"/snapshots/{digest}", content)
        return digest

    def body(self, digest: str, *, workdir: str | None = None, **more: Any) -> dict[str, Any]:
        """Return the body of a POST for the uploaded script."""
        return {
            "kind": "script",
            "name": "bench",
            "entry": {"script": "main.py", "args": []},
            "resources": {"gpus": 1, "cpus": 1, "mem": "256MiB"},
            "time": "1h",
            "workdir": workdir or str(self.home),
            "workdir_mode": "here",
            "snapshot": digest,
            "environment": {"PATH": os.environ["PATH"]},
            "interpreter": {"python": NATIVE_PYTHON, "kernel": None},
            **more,
        }

    def submit(self, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.call("POST", "/jobs", body)
        return answer

    def wait_for(
        self, job: int, states: Sequence[str] = ("completed",), timeout: float = 60
    ) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            answer: dict[str, Any] = self.call("GET", f"/jobs/{job}")
            if answer["state"] in states:
                return answer
            time.sleep(0.05)
        raise RuntimeError(f"job {job} is {answer['state']} after {timeout} s, not {states}")


@contextlib.contextmanager
def running_pool(simulate: str = "4x8x32GiB", policy: str | None = None) -> Iterator[Pool]:
    """Run a service for the time of a measurement; end its jobs afterwards."""
    with tempfile.TemporaryDirectory(prefix="gpupool-bench-") as folder:
        home = Path(folder)
        home.chmod(0o700)
        if policy is not None:
            (home / "policy.yaml").write_text(policy)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUPOOL_")}
        command = [
            sys.executable,
            "-m",
            "jupyter_gpupool.app",
            "serve",
            "--allow-root",
            "--simulate",
            simulate,
        ]
        with (home / "bench.log").open("wb") as log:
            service = subprocess.Popen(
                command, env={**environment, "GPUPOOL_HOME": folder}, stdout=log, stderr=log
            )
        try:
            pool = Pool(home)
            wait_until_up(pool, service)
            yield pool
            pool.call("POST", "/shutdown", {"keep_jobs": False})
            service.wait(60)
        finally:
            if service.poll() is None:
                service.kill()
                service.wait()


def wait_until_up(pool: Pool, service: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        try:
            pool.call("GET", "/whoami")
            return
        except OSError:
            pool.connection.close()
            if service.poll() is not None:
                break
            time.sleep(0.1)
    raise RuntimeError("the service did not start:\n" + (pool.home / "bench.log").read_text()[-2000:])


def seconds(function: Any, *arguments: Any) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start
