"""A hundred trivial notebooks, in one run side by side with jupyter-scheduler (in .venv-bench)."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import Pool, Row, median, running_pool

COUNT = 100
ROOT = Path(__file__).parents[2]
PEER_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": "one",
            "metadata": {},
            "outputs": [],
            "source": "1 + 1",
        }
    ],
    "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
ENDED = {"COMPLETED", "FAILED", "STOPPED"}


def run(*, count: int = COUNT) -> list[Row]:
    with running_pool() as pool:
        ours, create, start = run_ours(pool, count)
    rate = count / ours
    rows = [
        Row(f"{count} trivial notebooks: rate", rate, "/s"),
        Row("one notebook: POST", create, "ms"),
        Row("one notebook: POST to running", start, "ms"),
    ]
    if not PEER_PYTHON.exists():
        return rows
    with running_peer() as peer:
        theirs, peer_create, peer_start = run_peer(peer, count)
    peer_rate = count / theirs
    return [
        Row(
            f"{count} trivial notebooks: rate",
            rate,
            "/s",
            ">= 1.8x",
            f"peer {peer_rate:.2f} /s",
            rate / peer_rate,
        ),
        Row("one notebook: POST", create, "ms", "", f"peer {peer_create:.1f} ms", create / peer_create),
        Row(
            "one notebook: POST to running", start, "ms", "", f"peer {peer_start:.0f} ms", start / peer_start
        ),
    ]


def run_ours(pool: Pool, count: int) -> tuple[float, float, float]:
    """Return seconds for all, and medians in ms of the POST and of POST to running, for one at a time."""
    content = tar_of("notebook.ipynb", json.dumps(NOTEBOOK).encode())
    digest = hashlib.sha256(content).hexdigest()
    pool.call("PUT", f"/snapshots/{digest}", content)
    body = pool.body(
        digest,
        kind="notebook",
        entry={"notebook": "notebook.ipynb", "parameters": {}, "kernel": "python3"},
        interpreter={"python": sys.executable, "kernel": "python3"},
        environment={"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
    )
    creates, starts = [], []
    for _ in range(5):
        begin = time.perf_counter()
        job = pool.submit(body)["id"]
        creates.append((time.perf_counter() - begin) * 1e3)
        pool.wait_for(job, ("running", "completed"))
        starts.append((time.perf_counter() - begin) * 1e3)
        pool.wait_for(job)
    begin = time.perf_counter()
    jobs = [pool.submit(body)["id"] for _ in range(count)]
    for job in jobs:
        pool.wait_for(job, ("completed", "failed"), timeout=600)
    elapsed = time.perf_counter() - begin
    failed = [job for job in jobs if pool.call("GET", f"/jobs/{job}")["state"] != "completed"]
    if failed:
        raise RuntimeError(f"{len(failed)} notebooks failed, the first is job {failed[0]}")
    return elapsed, median(creates), median(starts)


def tar_of(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o644
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Peer:
    """A plain JupyterLab with jupyter-scheduler."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.base + path, data, {"Authorization": "token bench"}, method=method
        )
        with urllib.request.urlopen(request, timeout=300) as reply:
            return json.loads(reply.read())

    def create(self, name: str) -> str:
        body = {
            "name": name,
            "input_uri": "trivial.ipynb",
            "runtime_environment_name": "python3",
            "runtime_environment_parameters": None,
            "output_formats": ["ipynb"],
        }
        return str(self.call("POST", "/scheduler/jobs", body)["job_id"])


@contextlib.contextmanager
def running_peer(port: int = 18899) -> Iterator[Peer]:
    with tempfile.TemporaryDirectory(prefix="gpupool-peer-") as folder:
        (Path(folder) / "trivial.ipynb").write_text(json.dumps(NOTEBOOK))
        environment = {
            **os.environ,
            "JUPYTER_DATA_DIR": f"{folder}/data",
            "JUPYTER_CONFIG_DIR": f"{folder}/config",
        }
        environment.update(JUPYTER_TOKEN="bench", JUPYTER_RUNTIME_DIR=f"{folder}/runtime")
        environment["PATH"] = f"{PEER_PYTHON.parent}{os.pathsep}{environment['PATH']}"
        command = [str(PEER_PYTHON), "-m", "jupyterlab", "--allow-root", "--no-browser", f"--port={port}"]
        command += [f"--ServerApp.root_dir={folder}", "--ip=127.0.0.1", "--LabApp.news_url="]
        with (Path(folder) / "peer.log").open("wb") as log:
            lab = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        peer = Peer(port)
        try:
            for _ in range(600):
                with contextlib.suppress(urllib.error.URLError, ConnectionError):
                    peer.call("GET", "/scheduler/jobs?max_items=1")
                    break
                time.sleep(0.1)
            yield peer
        finally:
            lab.terminate()
            lab.wait(60)


def run_peer(peer: Peer, count: int) -> tuple[float, float, float]:
    creates, starts = [], []
    for number in range(3):
        begin = time.perf_counter()
        created = time.time() * 1e3
        job = peer.create(f"single-{number}")
        creates.append((time.perf_counter() - begin) * 1e3)
        starts.append(wait_for_peer(peer, {job})[job]["start_time"] - created)
    begin = time.perf_counter()
    wait_for_peer(peer, {peer.create(f"many-{number}") for number in range(count)})
    return time.perf_counter() - begin, median(creates), median(starts)


def wait_for_peer(peer: Peer, jobs: set[str]) -> dict[str, Any]:
    """Wait until all have ended; a new job reads STOPPED there until its process has begun."""
    while True:
        listed = {job["job_id"]: job for job in peer.call("GET", "/scheduler/jobs?max_items=1000")["jobs"]}
        ended = {job for job in jobs if listed[job]["status"] in ENDED and listed[job].get("end_time")}
        if ended == jobs:
            return listed
        time.sleep(0.5)
