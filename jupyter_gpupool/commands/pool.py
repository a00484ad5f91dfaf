"""The pool's service: serve, stop, status.

Owns: how the service's process is started, in the foreground or detached. Never: what it does then.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import PoolError, Refused, ServiceDown
from jupyter_gpupool.client.find import place
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.phrases import counts_text
from jupyter_gpupool.client.text import plural
from jupyter_gpupool.commands import Command, answer

PATIENCE = 60.0  # seconds that a service may take to answer, or to end


def _serve_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--background", action="store_true", help="detach; end by itself when nothing is left to do"
    )
    parser.add_argument(
        "--policy", metavar="FILE", help="the policy file (default: policy.yaml in the pool's home)"
    )
    parser.add_argument("--allow-root", action="store_true", help="run as root all the same")


def _serve(options: argparse.Namespace) -> int:
    from jupyter_gpupool.service.config import ServiceConfig
    from jupyter_gpupool.service.main import serve

    config = ServiceConfig.from_environment(
        os.environ,
        policy=Path(options.policy).absolute() if options.policy else None,
        self_started=options.background or None,
        allow_root=options.allow_root,
    )
    if os.geteuid() == 0 and not (options.allow_root or options.background or config.hub):
        raise Refused(
            "invalid_option",
            "You are root, and every job would run as root.",
            hint="Use another account, or add --allow-root.",
        )
    asked_by = os.getpid()
    code = serve(config, background=options.background)
    if options.background and code == 0 and os.getpid() == asked_by:
        url = Home.of(os.environ).url()
        answer(options, {"url": url}, [f"The pool's service runs at {url}."])
    return code


def _stop_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--jobs",
        choices=("keep", "end"),
        default="keep",
        metavar="keep|end",
        help="running jobs go on, and the next service finds them (keep, the default), or end now",
    )


def _stop(options: argparse.Namespace) -> int:
    found = place(os.environ)
    if found.connection().managed:
        raise Refused("not_yours", f"Your Hub's administrator runs the pool at {found.url}, and can stop it.")
    record = _record(found.home)
    client = running()
    if client is None:
        answer(options, {"stopped": False}, ["No service is running."])
        return 0
    jobs = len(client.queue()["running"])
    client.shutdown(keep_jobs=options.jobs == "keep")
    deadline = time.monotonic() + PATIENCE
    while record and _is_alive(record["pid"]):
        if time.monotonic() > deadline:
            raise PoolError(
                "conflict", f"Process {record['pid']} has not ended in {PATIENCE:g} s; see service.log."
            )
        time.sleep(0.05)
    answer(
        options,
        {"stopped": True, "jobs": options.jobs, "running": jobs},
        [f"The service has ended{_fate_of(jobs, options.jobs)}."],
    )
    return 0


def _fate_of(jobs: int, choice: str) -> str:
    if jobs == 0:
        return ""
    if choice == "end":
        return f", and with it {plural(jobs, 'running job')}"
    return f"; {plural(jobs, 'job goes', 'jobs go')} on, and the next command says what became of them"


def _status(options: argparse.Namespace) -> int:
    found = place(os.environ)
    client = running()
    where = str(found.home.path) if found.home else found.url
    if client is None:
        reply: dict[str, Any] = {"running": False, "home": where}
        answer(options, reply, [f"No service is running for {where}; it starts when it is needed."])
        return 0
    who, pool, queue = client.whoami(), client.pool(), client.queue()
    record = _record(found.home) or {}
    reply = {
        "running": True,
        "home": where,
        "version": who["version"],
        "pid": record.get("pid"),
        "started": record.get("started"),
        "pool": pool["describe"],
        "simulated": who["simulated"],
        "troubles": client.health().get("troubles", []),
        "jobs_running": len(queue["running"]),
        "jobs_waiting": len(queue["waiting"]),
    }
    answer(options, reply, _status_lines(reply))
    return 0


def _status_lines(reply: dict[str, Any]) -> list[str]:
    process = f"process {reply['pid']}, home {reply['home']}" if reply["pid"] else f"at {reply['home']}"
    return [
        f"Running: version {reply['version']}, {process}.",
        reply["pool"],
        f"{counts_text(reply['jobs_running'], reply['jobs_waiting'])}.",
        *(f"Trouble: {trouble}" for trouble in reply["troubles"]),
    ]


def running() -> Client | None:
    """Return a client of the service that runs, or None; nothing is started.

    Raises
    ------
    PoolError
        The service refuses, or is one that only a Hub's administrator can start.
    """
    client = Client(place(os.environ).connection(pauses=()))
    try:
        client.whoami()
    except ServiceDown:
        if client.connection.managed:
            raise
        return None
    return client


def _record(home: Home | None) -> dict[str, Any] | None:
    """Return what the running service wrote about itself in its home."""
    if home is None:
        return None
    try:
        found: dict[str, Any] = json.loads(home.service_record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


SERVE = Command(_serve, _serve_arguments)
STOP = Command(_stop, _stop_arguments)
STATUS = Command(_status)
