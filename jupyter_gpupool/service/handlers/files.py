"""What jobs write, and the code they run.

Owns: logs, artifacts and snapshots as replies, each for its owner only. Never: how a file is opened safely
(the engine's), or what is in a snapshot.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import closing

from jupyter_gpupool.engines.base import NoSuchFileError
from jupyter_gpupool.ledger.records import Job
from jupyter_gpupool.service import logs
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.call import Bytes, Call
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.errors import invalid, not_found
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.replies import ArtifactsReply, DoneReply

MOST_BYTES = 1024**3
"""The largest artifact that is sent; it is read into memory whole."""


async def log(call: Call[None]) -> Bytes:
    """Return a job's output from an offset, waiting for it if asked."""
    job = call.private_job()
    service, query = call.service, call.query
    attempt, wait_s = query["attempt"], query["wait"]
    if attempt is None:
        attempt, wait_s = await _latest_attempt(service, job, wait_s)
    elif attempt > max(1, job.attempt):
        raise not_found(f"run {attempt} of job {job.id}", f"It has run {job.attempt} times.")

    def ended() -> bool:
        present = service.ledger.jobs.get(job.id)
        if present is None or present.state.ended:
            return True
        requeued = present.state.waiting and present.attempt == attempt
        return attempt > 0 and (present.attempt > attempt or requeued)

    with closing(logs.Growing(service.engine.files, job.id, str(attempt), "log")) as file:
        data, offset, over = await logs.follow(
            lambda: file.read(query["offset"]) if attempt else (b"", 0), ended, wait_s
        )
    headers = {
        "X-Gpupool-Offset": str(offset),
        "X-Gpupool-Ended": "true" if over else "false",
        "X-Gpupool-Attempt": str(attempt),
    }
    return Bytes(data, "text/plain; charset=utf-8", headers)


async def _latest_attempt(service: Service, job: Job, wait_s: float) -> tuple[int, float]:
    """Return which run of the job is its latest, and what is left of `wait_s` when its first has begun.

    A job that has not begun by then has run 0.
    """

    def begun() -> bool:
        present = service.ledger.jobs.get(job.id)
        return present is None or present.state.ended or present.attempt > 0

    loop = asyncio.get_running_loop()
    give_up = loop.time() + wait_s
    await logs.follow(lambda: (b"", 0), begun, wait_s)
    return service.ledger.jobs.get(job.id, job).attempt, max(0.0, give_up - loop.time())


async def list_artifacts(call: Call[None]) -> ArtifactsReply:
    """List the files in a job's output folder."""
    job = call.private_job()
    found = await aside(call.service.engine.files.list, job.id, "out")
    return {
        "artifacts": [
            {"name": file.name, "size": file.size, "modified_at": iso(file.modified)} for file in found
        ]
    }


async def artifact(call: Call[None]) -> Bytes:
    """Return one file of a job's output folder."""
    job, name = call.private_job(), call.path["name"]
    try:
        file = await aside(call.service.engine.files.open, job.id, "out", name)
    except NoSuchFileError:
        raise not_found(f"file {name!r} among what job {job.id} left") from None
    with open(file, "rb") as source:
        size = os.fstat(file).st_size
        if size > MOST_BYTES:
            raise invalid(
                f"{name} has {size} bytes, more than the {MOST_BYTES} that are sent at once.",
                f"Read it at {call.service.config.jobs / str(job.id) / 'out' / name}.",
            )
        return Bytes(await aside(source.read, MOST_BYTES))


async def has_snapshot(call: Call[None]) -> None:
    """Succeed if the user has sent this snapshot."""
    if not call.service.snapshots.has(call.who.user, call.path["sha256"]):
        raise not_found(f"snapshot {call.path['sha256']} of yours")


async def receive_snapshot(call: Call[None]) -> DoneReply:
    """Confirm a snapshot that was received and verified."""
    return {"ok": True}
