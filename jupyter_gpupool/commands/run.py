"""``jupyter gpupool run … -- command``: a command in this terminal, on GPUs of the pool.

Owns: the command's process, the signals it is passed, its exit code. Never: detached work.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from jupyter_gpupool.client import leasing, render
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.options import add_options, given
from jupyter_gpupool.client.submitting import LEASE
from jupyter_gpupool.commands import Command, client_of, remark

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def _arguments(parser: Parser) -> None:
    add_options(parser, LEASE)
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="what to run, with its arguments")


def _run(options: argparse.Namespace) -> int:
    command = [*options.command, *options.own]
    if not command:
        raise Refused(
            "invalid_option", "There is no command to run.", hint="Write: run --gpus 1 -- python train.py"
        )
    client = client_of(options)
    request = {**given(options, LEASE), "pid": os.getpid(), "name": os.path.basename(command[0])}
    with leasing.held(client, request, lambda lease: remark(render.lease_waits(lease))) as lease:
        remark(json.dumps(lease) if options.json else "\n".join(render.lease_held(lease)))
        code = _foreground(command, lease["environment"])
        if code == 128 + signal.SIGTERM:
            _say_why(client, lease["id"])
        return code


def _say_why(client: Client, lease: int) -> None:
    """Say why a command was ended, if that was because its lease was."""
    with suppress(PoolError):
        if because := client.lease(lease)["reason"]:
            remark(because)


def _foreground(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end; return its exit code, 128 + the signal's number if one ended it."""
    try:
        child = subprocess.Popen(command, env={**os.environ, **environment})
    except OSError as error:
        raise Refused("invalid_option", f"{command[0]} cannot be run: {error.strerror}.") from None
    with _signals_passed_to(child):
        code = child.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_passed_to(child: subprocess.Popen[Any]) -> Iterator[None]:
    """Pass signals on; Ctrl-C reaches the child by itself where it shares our terminal."""

    def pass_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    wanted = dict.fromkeys(PASSED_ON, pass_on)
    interrupt = signal.SIG_IGN if _in_foreground() else pass_on
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


RUN = Command(_run, _arguments, own_arguments=True)
