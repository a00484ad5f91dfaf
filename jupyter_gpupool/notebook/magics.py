"""``%gpupool …`` and ``%%gpupool submit``: the pool in a notebook.

Owns: how a line becomes a question to the pool, and how its answer is shown. Never: a traceback or
argparse's usage for a mistake: one sentence says what is wrong.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.core.magic import Magics, line_cell_magic, magics_class

from jupyter_gpupool.client import artifacts, leasing, options, render, tail
from jupyter_gpupool.client.arguments import HelpAsked, Parser, nearest
from jupyter_gpupool.client.awaiting import await_ends
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.following import ENDED
from jupyter_gpupool.client.phrases import fate_text
from jupyter_gpupool.client.request import Prepared, prepare_cell
from jupyter_gpupool.client.submitting import LEASE, REQUEST, path_arguments, prepare_line
from jupyter_gpupool.client.tasks import JobName, label, title
from jupyter_gpupool.client.text import plain
from jupyter_gpupool.client.verbs import VERBS, Verb, one_job, resolve, some_jobs
from jupyter_gpupool.notebook import completion, live, views
from jupyter_gpupool.notebook.api import submitted
from jupyter_gpupool.notebook.completion import WHAT
from jupyter_gpupool.notebook.pool import client as pool

NAME = "%gpupool"
TOO_LATE = "already uses devices in this kernel and will not see these: restart it, and acquire first."
DEVICE_LIBRARIES = ("torch", "tensorflow", "jax", "cupy")


class NotDone(Exception):  # noqa: N818
    """What was asked is not done; a notebook shows the sentence alone."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@magics_class
class GpupoolMagics(Magics):
    """The magics; one instance for a shell."""

    shell: Any

    def __init__(self, shell: Any):
        super().__init__(shell)
        self._leases: list[int] = []
        self._before: dict[str, str | None] = {}

    @line_cell_magic
    def gpupool(self, line: str, cell: str | None = None) -> Any:
        """Look at the GPU pool and submit jobs to it; ``%gpupool --help`` lists what it can do."""
        try:
            return self._run(_words(line), cell)
        except HelpAsked as asked:
            print(asked)
            return None
        except PoolError as error:
            raise NotDone(str(error)) from None

    def _run(self, words: list[str], cell: str | None) -> Any:
        verb = words[0] if words else ""
        if cell is not None and verb != "submit":
            raise Refused(
                "invalid_option", "A cell can only be submitted.", hint=f"Write %{NAME} submit on top."
            )
        if not verb:
            return _overview()
        if verb in ("-h", "--help", "help"):
            raise HelpAsked(_help())
        if cell is not None:
            return self._submit_cell(words[1:], cell)
        own: dict[str, Callable[[list[str]], Any]] = {
            "submit": self._submit,
            "logs": self._logs,
            "wait": self._wait,
            "fetch": self._fetch,
            "acquire": self._acquire,
            "give-back": self._give_back,
        }
        if verb in own:
            return own[verb](words[1:])
        if verb in VERBS:
            return _ask(verb, VERBS[verb], words[1:])
        raise Refused(
            "invalid_option",
            f"{NAME} has no command {verb!r}.{nearest(verb, WHAT)}",
            hint=f"{NAME} --help lists them.",
        )

    # -- jobs ------------------------------------------------------------------------------------

    def _submit(self, words: list[str]) -> Any:
        parser = _parser("submit")
        path_arguments(parser)
        mine, own = parser.own(words)
        line = parser.read(mine)
        line.own = own
        return _submitted(prepare_line(line), line)

    def _submit_cell(self, words: list[str], cell: str) -> Any:
        parser = _parser("submit", f"%{NAME}")
        options.add_options(parser)
        line = parser.read(words)
        return _submitted(prepare_cell(cell, self.shell.user_ns, options.given(line, REQUEST)), line)

    def _logs(self, words: list[str]) -> None:
        parser = _parser("logs")
        one_job(parser)
        tail.arguments(parser)
        line = parser.read(words)
        client = pool()
        job = resolve(client, line.job)
        try:
            for text in tail.texts(client, job, line):
                print(text, end="", flush=True)
        except KeyboardInterrupt:
            print(f"\n(no longer following; job {job} goes on)")

    def _wait(self, words: list[str]) -> None:
        parser = _parser("wait")
        some_jobs(parser)
        line = parser.read(words)
        client = pool()
        _await([resolve(client, name) for name in line.jobs])

    def _fetch(self, words: list[str]) -> Any:
        parser = _parser("fetch")
        one_job(parser)
        parser.add_argument(
            "folder", metavar="FOLDER", nargs="?", default=".", help="where files go (default: here)"
        )
        line = parser.read(words)
        client = pool()
        job = client.job(resolve(client, line.job))
        copied = artifacts.copy_files(client, job, Path(line.folder))
        for path in copied:
            print(f"Copied {path}.")
        names = {artifact["name"] for artifact in client.artifacts(label(job))}
        if artifacts.FETCHED in names:
            variables = artifacts.result(client, job)
            self.shell.push(variables)
            print(f"Set {', '.join(sorted(variables))}.")
        if artifacts.RESULT in names:
            return artifacts.result(client, job)
        if not copied and artifacts.FETCHED not in names:
            print(f"{title(job)} has left nothing in {job['out']}.")
        return None

    # -- this kernel -----------------------------------------------------------------------------

    def _acquire(self, words: list[str]) -> None:
        parser = _parser("acquire")
        options.add_options(parser, LEASE)
        line = parser.read(words)
        request = {**options.given(line, LEASE), "pid": os.getpid(), "name": "kernel"}
        loaded = [name for name in DEVICE_LIBRARIES if _has_started(name)]
        try:
            lease = leasing.hold(pool(), request, lambda found: print(render.lease_waits(found), flush=True))
        except KeyboardInterrupt:
            print("(given up; nothing is held)")
            return
        self._leases.append(lease["id"])
        for name, value in lease["environment"].items():
            self._before.setdefault(name, os.environ.get(name))
            os.environ[name] = value
        print("\n".join(render.lease_held(lease)))
        if loaded:
            print(f"{' and '.join(loaded)} {TOO_LATE}", file=sys.stderr)

    def _give_back(self, words: list[str]) -> None:
        _parser("give-back").read(words)
        if not self._leases:
            print("This kernel holds nothing.")
        while self._leases:
            lease = self._leases[-1]
            pool().give_back(lease)
            self._leases.pop()
            print(f"Gave back lease {lease}.")
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        self._before.clear()


def load(shell: Any) -> None:
    """Register the magics and their completion."""
    shell.register_magics(GpupoolMagics)
    shell.set_hook("complete_command", completion.complete, re_key=completion.LINE)


def unload(shell: Any) -> None:
    """Take the magics away."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("gpupool", None)


def _parser(verb: str, name: str = NAME) -> Parser:
    return Parser(f"{name} {verb}", WHAT[verb])


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=False)
    except ValueError as error:
        raise Refused("invalid_option", f"The line cannot be read: {str(error).lower()}.") from None


def _ask(name: str, verb: Verb, words: list[str]) -> Any:
    parser = _parser(name)
    parser.add_argument("--json", action="store_true", help="return the answer as a dict")
    verb.arguments(parser)
    line = parser.read(words)
    client = pool()
    reply = verb.ask(client, line)
    if line.json:
        return reply
    alive = live.mimebundle(client, reply) if name == "show" and reply["state"] not in ENDED else {}
    return views.Bundle("\n".join(map(plain, verb.lines(reply))), views.VIEWS[name](reply), alive)


def _overview() -> views.Bundle:
    client = pool()
    answers = client.whoami(), client.quota(), client.queue()
    return views.Bundle("\n".join(render.overview(*answers)), views.overview(*answers))


def _submitted(prepared: Prepared, line: argparse.Namespace) -> Any:
    client = pool()
    if "dry_run" in line:
        reply = client.dry_run(prepared.body)
        return views.Bundle("\n".join(render.dry_run(reply)), views.dry_run(reply))
    job = submitted(prepared, client)
    print(job.receipt, flush=True)
    if "wait" in line:
        _await([job.id])
        return None
    return job


def _await(jobs: list[JobName]) -> None:
    """Wait for jobs; Interrupt ends the wait, not the jobs.

    Raises
    ------
    PoolError
        One of them did not complete.
    """
    try:
        ended = await_ends(pool(), jobs, print)
    except KeyboardInterrupt:
        print("(no longer waiting; what was submitted goes on)")
        return
    for job in ended:
        if job["state"] != "completed":
            raise PoolError(
                "job_failed",
                f"{title(job)} {fate_text(job['state'])}.",
                hint=f"{NAME} why {label(job)} says more.",
            )


def _has_started(library: str) -> bool:
    """Tell whether a library of this process has already looked for GPUs."""
    module = sys.modules.get(library)
    if module is None:
        return False
    if library == "torch":
        return bool(module.cuda.is_initialized())
    return True


def _help() -> str:
    width = max(map(len, WHAT))
    lines = [f"{NAME}  an overview", "", *(f"{NAME} {verb:<{width}}  {what}" for verb, what in WHAT.items())]
    return "\n".join(
        [*lines, "", f"%{NAME} submit on top of a cell submits the cell. {NAME} VERB --help says more."]
    )
