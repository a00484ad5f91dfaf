"""``jupyter gpupool doctor``: what the pool needs on this machine, and what is missing.

Owns: the list of checks; each is one sentence that says what was found and, where something is
wrong, what to do. Never: changes anything, or starts the service.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.find import place
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.text import memory
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.commands import Command, answer, hub_checks
from jupyter_gpupool.commands.findings import Finding, Verdict
from jupyter_gpupool.devices.base import DevicesError, Pool
from jupyter_gpupool.devices.find import open_pool
from jupyter_gpupool.engines.local.cgroups import Subtree
from jupyter_gpupool.ledger.errors import LedgerError
from jupyter_gpupool.ledger.place import refuse_network
from jupyter_gpupool.policy.load import check_against, load_policy
from jupyter_gpupool.policy.problems import PolicyError

OLDEST = (3, 11)
SPARSE_GIB = 10  # less free space than this is worth a note


def _run(options: argparse.Namespace) -> int:
    found = list(findings(os.environ))
    width = max(len(finding.subject) for finding in found)
    lines = [f"{finding.verdict:<8} {finding.subject:<{width}}  {finding.sentence}" for finding in found]
    answer(options, {"findings": [asdict(finding) for finding in found]}, lines)
    return 1 if any(finding.verdict == "problem" for finding in found) else 0


def findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check everything, in the order in which the pool would need it.

    In a session of a Hub, or where somebody else's pool is named, the way there is checked. Where the system
    runs a Hub's pool, that one is, unless `GPUPOOL_HOME` names another.
    """
    site = None if environ.get("GPUPOOL_HOME") else hub_checks.Site.of(hub_checks.UNITS)
    if environ.get("GPUPOOL_HUB_URL") or (environ.get("GPUPOOL_URL") and not site):
        yield python()
        yield system()
        yield from elsewhere(environ)
        return
    if site:
        environ = {**environ, **site.environment}
    home = Home.of(environ)
    yield python()
    yield system()
    if site:
        yield disk(home.path)
        yield from hub_checks.findings(site)
    else:
        yield from folder(home)
        yield survival(home)
    cards, pool = devices(environ.get("GPUPOOL_SIMULATE") or simulated_now(home))
    yield cards
    yield policy(home, environ, pool)
    if not site:
        yield service(home)


def python() -> Finding:
    """Check the interpreter of the service."""
    version = ".".join(map(str, sys.version_info[:3]))
    text = f"jupyter-gpupool {__version__} in Python {version} ({sys.executable})"
    if sys.version_info < OLDEST:
        return Finding("python", "problem", f"{text}; the service needs {OLDEST[0]}.{OLDEST[1]} or newer.")
    return Finding("python", "ok", f"{text}.")


def system() -> Finding:
    """Check the operating system."""
    name = f"{platform.system()} {platform.release()}"
    if platform.system() != "Linux":
        return Finding("system", "problem", f"{name}: jobs run on Linux; this machine can be a client.")
    return Finding("system", "ok", f"{name}, {len(os.sched_getaffinity(0))} cores for this process.")


def elsewhere(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check a pool that somebody else serves, and what this session has of it."""
    try:
        there = place(environ)
        found = Client(there.connection(pauses=())).whoami()
    except PoolError as error:
        yield Finding("pool", "problem", str(error))
        return
    groups = ", ".join(group["name"] for group in found["groups"]) or "of no group"
    simulated = f", simulated as {found['pool']}" if found["simulated"] else ""
    yield Finding(
        "pool",
        "ok",
        f"{there.url} answers, version {found['version']}{simulated}; you are {found['user']} ({groups}).",
    )
    sizes = [int(size) for size in environ.get("GPUPOOL_GPU_MEMORY_MIB", "").split(",") if size]
    if sizes:
        held = " + ".join(memory(size) for size in sizes)
        cards = environ.get("GPUPOOL_GPUS", "")
        yield Finding("session", "ok", f"it holds {held} of {cards.replace(',', ', ')}.")
    elif environ.get("GPUPOOL_LEASE_ID"):
        yield Finding("session", "ok", "it holds no GPU: it was started with CPU only.")


def folder(home: Home) -> Iterator[Finding]:
    """Check the state folder, or the nearest folder above it that is there."""
    place = home.path
    while not place.exists():
        place = place.parent
    made = "" if place == home.path else " (will be made at the first start)"
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding("home", "problem", f"{place} cannot be written; set GPUPOOL_HOME to a folder of yours.")
    else:
        yield Finding("home", "ok", f"{home.path}{made}.")
    yield disk(place)


def disk(place: Path) -> Finding:
    """Check the disk under the state folder."""
    try:
        refuse_network(place.resolve())
        free = shutil.disk_usage(place).free // 2**30
    except LedgerError as error:
        return Finding("file system", "problem", str(error))
    except OSError as error:
        return Finding("file system", "problem", f"{place}: {error.strerror}.")
    verdict: Verdict = "ok" if free >= SPARSE_GIB else "note"
    return Finding("file system", verdict, f"a local one, {free} GiB free.")


def survival(home: Home) -> Finding:
    """Say what a job's life depends on here."""
    found = Subtree.at(home.path).survival()
    return Finding("survival", "ok" if found.whole_tree else "note", found.sentence)


def simulated_now(home: Home) -> str | None:
    """Return the simulated pool that a running service has, if it has one."""
    try:
        spec: str | None = json.loads(home.service_record.read_text(encoding="utf-8"))["pool"]
    except (OSError, ValueError, KeyError):
        return None
    return spec


def devices(simulate: str | None) -> tuple[Finding, Pool | None]:
    """Check the cards: the machine's own, or those of the simulated pool."""
    try:
        pool = open_pool(simulate)
    except DevicesError as error:
        return Finding("cards", "problem", str(error)), None
    sick = [trouble for trouble in pool.healthy().values() if trouble]
    return Finding("cards", "note" if sick else "ok", " ".join([pool.describe(), *sick])), pool


def policy(home: Home, environ: Mapping[str, str], pool: Pool | None) -> Finding:
    """Check the administrator's file, if there is one."""
    path = environ.get("GPUPOOL_POLICY") or str(home.path / "policy.yaml")
    try:
        with open(path, encoding="utf-8") as file:
            found = load_policy(file.read(), source=path)
        if pool is not None and (problems := check_against(found, pool.cards())):
            raise PolicyError(problems, path)
    except FileNotFoundError:
        return Finding("policy", "ok", f"no file {path}: the built-in policy holds.")
    except PermissionError:
        return Finding("policy", "note", f"Only root and the service may read {path}; use sudo.")
    except (PolicyError, OSError, UnicodeDecodeError) as error:
        return Finding("policy", "problem", str(error))
    return Finding("policy", "ok", f"{path} is good.")


def service(home: Home) -> Finding:
    """Look whether the service answers; it is not started."""
    if not home.service_socket.exists():
        return Finding("service", "ok", "not running; it starts by itself when it is needed.")
    try:
        found = Client(Connection(home.url(), pauses=())).whoami()
    except PoolError as error:
        return Finding("service", "note", f"{error} It starts by itself when it is needed.")
    if found["version"] != __version__:
        text = f"version {found['version']} is running; it restarts as {__version__} at the next command."
        return Finding("service", "note", text)
    return Finding("service", "ok", f"running, version {found['version']}.")


DOCTOR = Command(_run)
