"""Commands that stay with a job: submit, logs, wait, fetch.

Owns: what they print while they wait, and their exit codes (that of the job where one is waited for).
Never: how a request is put together, or a log is read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_gpupool.client import artifacts, render, tail
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.awaiting import await_ends
from jupyter_gpupool.client.request import receipt_lines
from jupyter_gpupool.client.submitting import path_arguments, prepare_line
from jupyter_gpupool.client.tasks import JobName, title
from jupyter_gpupool.client.verbs import one_job, resolve, some_jobs
from jupyter_gpupool.commands import Command, answer, client_of, remark

Json = Mapping[str, Any]


def _submit(options: argparse.Namespace) -> int:
    prepared = prepare_line(options)
    client = client_of(options)
    if "dry_run" in options:
        reply = client.dry_run(prepared.body)
        answer(options, reply, render.dry_run(reply))
        return 0
    job = client.submit(prepared.body, prepared.snapshot)
    receipt = receipt_lines(job, prepared.taken, prepared.held_back)
    if "wait" not in options:
        answer(options, job, receipt)
        return 0
    remark("\n".join(receipt))
    return _await(client, [job["id"]], options)


def _logs_arguments(parser: Parser) -> None:
    one_job(parser)
    tail.arguments(parser)


def _logs(options: argparse.Namespace) -> int:
    client = client_of(options)
    job = resolve(client, options.job)
    texts = tail.texts(client, job, options)
    if options.json and not options.follow:
        answer(options, {"job": job, "text": "".join(texts)}, ())
        return 0
    for text in texts:
        print(f"{json.dumps({'job': job, 'text': text})}\n" if options.json else text, end="", flush=True)
    return 0


def _wait(options: argparse.Namespace) -> int:
    client = client_of(options)
    return _await(client, [resolve(client, name) for name in options.jobs], options)


def _await(client: Client, jobs: Sequence[JobName], options: argparse.Namespace) -> int:
    """Wait for the ends of jobs; return the first exit code that is not 0."""
    ended = await_ends(client, jobs, remark)
    answer(options, {"jobs": ended}, ())
    return next((code for code in map(_exit_code, ended) if code), 0)


def _exit_code(job: Json) -> int:
    if job["state"] == "completed":
        return 0
    return job.get("exit_code") or 1


def _fetch_arguments(parser: Parser) -> None:
    one_job(parser)
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="where to (default: here)")


def _fetch(options: argparse.Namespace) -> int:
    client = client_of(options)
    job = client.job(resolve(client, options.job))
    copied = artifacts.copy_files(client, job, Path(options.folder))
    lines = [f"Copied {path}." for path in copied] or [f"{title(job)} has left no files in {job['out']}."]
    answer(options, {"job": job["id"], "files": [str(path) for path in copied]}, lines)
    return 0


SUBMIT = Command(_submit, path_arguments, own_arguments=True)
LOGS = Command(_logs, _logs_arguments)
WAIT = Command(_wait, some_jobs)
FETCH = Command(_fetch, _fetch_arguments)
