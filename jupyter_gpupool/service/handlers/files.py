"""What jobs write, and the code they run."""

from __future__ import annotations

import os

from jupyter_gpupool.service import logs
from jupyter_gpupool.service.call import Bytes, Call
from jupyter_gpupool.service.errors import invalid, not_found
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.replies import ArtifactsReply, DoneReply


async def log(call: Call[None]) -> Bytes:
    """Return a job's output from an offset, waiting for it if asked."""
    job = call.private_job()
    attempt = call.query["attempt"] or job.attempt
    if attempt > max(1, job.attempt):
        raise not_found(f"run {attempt} of job {job.id}", f"It has run {job.attempt} times.")
    root, parts = call.service.config.jobs, (str(job.id), str(attempt), "log")

    def ended() -> bool:
        present = call.service.ledger.jobs.get(job.id)
        return (
            present is None
            or present.state.ended
            or present.attempt > attempt > 0
            or _between(present, attempt)
        )

    data, offset, over = await logs.follow(
        lambda: logs.read_at(root, parts, call.query["offset"]) if attempt else (b"", 0),
        ended,
        call.query["wait"],
    )
    headers = {
        "X-Gpupool-Offset": str(offset),
        "X-Gpupool-Ended": "true" if over else "false",
        "X-Gpupool-Attempt": str(attempt),
    }
    return Bytes(data, "text/plain; charset=utf-8", headers)


def _between(job: object, attempt: int) -> bool:
    """Whether the job waits to run again after this attempt."""
    return job.state.waiting and job.attempt == attempt > 0  # type: ignore[attr-defined, no-any-return]


async def list_artifacts(call: Call[None]) -> ArtifactsReply:
    """List the files in a job's output folder."""
    job = call.private_job()
    return {
        "artifacts": [
            {"name": file.name, "size": file.size, "modified_at": iso(file.modified)}
            for file in logs.list_files(call.service.config.jobs / str(job.id), "out")
        ]
    }


async def artifact(call: Call[None]) -> Bytes:
    """Return one file of a job's output folder."""
    job, name = call.private_job(), call.path["name"]
    try:
        with logs.open_below(call.service.config.jobs / str(job.id), "out", name) as file:
            size = os.fstat(file).st_size
            if size > MOST_BYTES:
                raise invalid(
                    f"{name} has {size} bytes, more than the {MOST_BYTES} that are sent at once.",
                    f"Read it at {call.service.config.jobs / str(job.id) / 'out' / name}.",
                )
            with open(os.dup(file), "rb") as source:
                return Bytes(source.read())
    except logs.NoSuchFileError:
        raise not_found(f"file {name!r} among what job {job.id} left") from None


MOST_BYTES = 1024**3


async def has_snapshot(call: Call[None]) -> None:
    """Succeed if the user has sent this snapshot."""
    if not call.service.snapshots.has(call.who.user, call.path["sha256"]):
        raise not_found(f"snapshot {call.path['sha256']} of yours")


async def receive_snapshot(call: Call[None]) -> DoneReply:
    """Confirm a snapshot that was received and verified."""
    return {"ok": True}
