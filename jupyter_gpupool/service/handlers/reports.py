"""What a job says of itself, with its own token.

Owns: taking a report. Never: believing one; it is shown to the job's owner, and decides nothing.
"""

from __future__ import annotations

from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.errors import ApiError
from jupyter_gpupool.service.replies import DoneReply
from jupyter_gpupool.service.wire import ProgressRequest


async def progress(call: Call[ProgressRequest]) -> DoneReply:
    """Keep how far a job says it is."""
    service, report = call.service, call.body
    try:
        service.progress.send(call.private_job(), report.fraction, report.values, service.now)
    except OSError as error:
        raise ApiError(
            507,
            "storage_unavailable",
            f"The report cannot be kept: {error.strerror}.",
            hint="The job goes on; report again later.",
        ) from None
    return {"ok": True}
