"""The end of a log, or all of it, once or as it grows.

Owns: the options of ``logs`` and how they become pieces of text. Never: printing.
"""

from __future__ import annotations

import argparse
import codecs
from collections.abc import Iterator

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.tasks import JobName

END = 1024 * 1024  # bytes: the last lines are looked for in so much of the end


def arguments(parser: Parser) -> None:
    """Let a verb show a log."""
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    parser.add_argument("--tail", metavar="N", type=int, help="only the last N lines")


def texts(client: Client, job: JobName, options: argparse.Namespace) -> Iterator[str]:
    """Yield a job's output as the options ask for it.

    Raises
    ------
    Refused
        ``--tail`` is negative.
    """
    if options.tail is not None and options.tail < 0:
        raise Refused("invalid_option", f"--tail {options.tail}: the number of lines cannot be negative.")
    offset = 0 if options.tail is None else _offset_of_last(client, job, options.tail)
    parts = client.follow_logs(job, offset) if options.follow else _now(client, job, offset)
    return codecs.iterdecode(parts, "utf-8", "replace")


def _now(client: Client, job: JobName, offset: int) -> Iterator[bytes]:
    """Yield what a log holds at present."""
    while True:
        part = client.logs(job, offset)
        if not part.data:
            return
        yield part.data
        offset = part.offset


def _offset_of_last(client: Client, job: JobName, lines: int) -> int:
    """Return where the last `lines` lines of a log begin."""
    end = client.logs(job, -END)
    kept = end.data.splitlines(keepends=True)[-lines:] if lines else []
    return end.offset - sum(map(len, kept))
