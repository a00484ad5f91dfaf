"""What is executed for a job: program, arguments, environment, folder.

Owns: the step from a job's entry and its lease to a `WorkSpec`, complete, with absolute paths. Pure.
Never: a shell, a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpupool.client import hosts
from jupyter_gpupool.client.address import UnixAddress
from jupyter_gpupool.devices import modes
from jupyter_gpupool.engines.base import WorkSpec
from jupyter_gpupool.ledger.records import Job, LeaseRecord
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.snapshots import SnapshotStore

NOTEBOOK_HOST = "jupyter_gpupool.engines.local.notebook_host"
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def key_of(job: Job) -> str:
    """Return the name of a job's present attempt, which an engine runs at most once."""
    return f"{job.id}/{job.attempt}"


def work_spec(
    job: Job,
    lease: LeaseRecord,
    config: ServiceConfig,
    snapshots: SnapshotStore,
    card_mib: int,
    *,
    token: str,
    user: str | None,
) -> WorkSpec:
    """Return everything an engine needs to run the job's present attempt.

    Parameters
    ----------
    card_mib
        Memory of a whole card of the lease; 0 for work without a card.
    token
        With which the attempt reports on itself.
    user
        The account to run as; None = the engine's own.
    """
    folder = config.jobs / str(job.id)
    code = folder / str(job.attempt) / "code"
    snapshot = str(snapshots.path(job.owner, job.snapshot)) if job.snapshot else None
    return WorkSpec(
        key=key_of(job),
        job=job.id,
        attempt=job.attempt,
        kind=job.kind,
        argv=_argv(job, code),
        environment=_environment(job, config, granted(lease, card_mib), folder, code, user)
        | _way_back(config, token),
        workdir=str(code) if job.workdir_mode == "snapshot" else job.workdir,
        snapshot=snapshot,
        snapshot_sha256=job.snapshot,
        folder=str(folder),
        limit_s=job.limit_s,
        grace_s=job.grace_s,
        cpus_milli=job.request.cpus_milli,
        memory_mib=job.request.memory_mib,
        owner=job.owner,
        entry=dict(job.entry),
        user=user,
    )


def _way_back(config: ServiceConfig, token: str) -> dict[str, str]:
    """Return how a job of a Hub's pool reaches the service without Hub and proxy.

    In a pool of one's own a job needs no token: it is known by its account, and may do all that its user may.
    """
    if config.hub is None:
        return {}
    return {"GPUPOOL_URL": str(UnixAddress(str(config.hub.socket), os.geteuid())), "GPUPOOL_TOKEN": token}


def granted(lease: LeaseRecord, card_mib: int) -> dict[str, str]:
    """Return the variables by which a process finds the cards of its lease, and keeps to its part of them."""
    return modes.environment(
        lease.mode,  # type: ignore[arg-type]
        [(share.uuid, share.mib) for share in lease.placement.gpus],
        card_mib=card_mib,
        lease_id=lease.id,
        cpus_milli=lease.request.cpus_milli,
    )


def _argv(job: Job, code: Path) -> tuple[str, ...]:
    python = str(job.interpreter["python"])
    match job.kind:
        case "script":
            base = code if job.snapshot else Path(job.workdir)
            return (python, str(base / job.entry["script"]), *job.entry["args"])
        case "cell":
            return (python, _host("cell_host.py"))
        case "function":
            return (python, _host("function_host.py"))
        case "notebook":
            return (sys.executable, "-E", "-P", "-m", NOTEBOOK_HOST)  # not to import the user's modules
        case "command":
            return tuple(job.entry["argv"])


def _host(name: str) -> str:
    return str(Path(next(iter(hosts.__path__))) / name)


def _environment(
    job: Job, config: ServiceConfig, lease: Mapping[str, str], folder: Path, code: Path, user: str | None
) -> dict[str, str]:
    """Return the user's variables, with the lease's and the job's own laid over them."""
    found = modes.merged(job.environment, lease)
    for name, value in _defaults(job, config, user).items():
        found.setdefault(name, value)
    attempt = folder / str(job.attempt)
    return found | {
        "GPUPOOL_JOB_ID": str(job.id),
        "GPUPOOL_ATTEMPT": str(job.attempt),
        **_task(job),
        "GPUPOOL_ENTRY": json.dumps(job.entry),
        "GPUPOOL_JOB_DIR": str(attempt),
        "GPUPOOL_OUT_DIR": str(folder / "out"),
        "GPUPOOL_CODE_DIR": str(code),
        "GPUPOOL_CHECKPOINT_DIR": str(folder / "checkpoint"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": _python_path(job.environment, code if job.snapshot else None, config),
    }


def _task(job: Job) -> dict[str, str]:
    """Return by what a task of an array knows which one it is."""
    if job.array is None:
        return {}
    return {"GPUPOOL_ARRAY_ID": str(job.array), "GPUPOOL_ARRAY_INDEX": str(job.index)}


def _defaults(job: Job, config: ServiceConfig, user: str | None) -> dict[str, str]:
    """Return what a job has unless its user says otherwise; the run's id stays the same over all attempts.

    Where it runs as another account, the engine knows that account's home.
    """
    pool = hashlib.sha256(os.fsencode(config.home.path)).hexdigest()[:8]
    home = {} if user else {"HOME": os.path.expanduser("~")}
    run = {"WANDB_RUN_ID": f"gpupool-{pool}-{job.id}", "WANDB_RESUME": "allow"}
    return {"PATH": DEFAULT_PATH} | run | home


def _python_path(environment: Mapping[str, str], code: Path | None, config: ServiceConfig) -> str:
    """Return the job's code first, then the user's own path, then the helpers for bare interpreters."""
    own = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join(([str(code)] if code else []) + own + [str(config.portable)])
