"""Bringing a job's results home: its files into a folder, its objects into Python.

Owns: which files are results of which kind of job, and that nothing of the user's is overwritten.
Never: unpickles what is not the user's own; the service gives artifacts to their owner only.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.phrases import cause_text
from jupyter_gpupool.client.tasks import label, title

RESULT = "result.pkl"
FETCHED = "fetched.pkl"
OBJECTS = (RESULT, FETCHED)

Json = Mapping[str, Any]


def copy_files(client: Client, job: Json, folder: Path) -> list[Path]:
    """Copy the files that a job left in its output folder, and return where they are now.

    A file of another content that is there already stays; the job's gets its number into its name.

    Raises
    ------
    Refused
        The folder cannot be made or written.
    """
    copied = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for artifact in client.artifacts(label(job)):
            if artifact["name"] in OBJECTS:
                continue
            data = client.artifact(label(job), artifact["name"])
            target = folder / Path(artifact["name"]).name
            if target.exists() and (not target.is_file() or target.read_bytes() != data):
                target = target.with_name(f"{target.stem}-{job['id']}{target.suffix}")
            target.write_bytes(data)
            copied.append(target)
    except OSError as error:
        problem = f"{error.filename or folder} cannot be written: {error.strerror}."
        raise Refused("unwritable_folder", problem, hint="Name another folder.") from None
    return copied


def result(client: Client, job: Json) -> Any:
    """Return what a function job returned, or the variables of a cell job as a dict.

    Raises
    ------
    PoolError
        The job has not completed, or its kind has no such result.
    """
    if job["state"] != "completed":
        problem = job.get("outcome") or f"The job is {job['state'].replace('_', ' ')}."
        raise PoolError(
            "no_result",
            f"{title(job)} has no result. {problem}",
            hint=cause_text(job.get("diagnosis")) or None,
        )
    name = {"function": RESULT, "cell": FETCHED}.get(job["kind"])
    if name is None:
        raise Refused(
            "no_result",
            f"A {job['kind']} has no result object; {title(job).lower()} wrote its files to {job['out']}.",
            hint="Copy them with fetch.",
        )
    if name not in (artifact["name"] for artifact in client.artifacts(label(job))):
        raise Refused("no_result", f"{title(job)} was submitted without --fetch, so it brought nothing back.")
    return load(client.artifact(label(job), name), f"the result of {title(job).lower()}")


def load(data: bytes, what: str) -> Any:
    """Read an object of the user's own job.

    Raises
    ------
    PoolError
        Something that it needs cannot be imported here.
    """
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError) as error:
        hint = "Install or define it here, then fetch again."
        raise PoolError(
            "unreadable_result", f"{what.capitalize()} cannot be read here: {error}.", hint=hint
        ) from None
