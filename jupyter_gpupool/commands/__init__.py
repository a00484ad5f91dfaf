"""The commands of ``jupyter gpupool``, one module for each family.

Owns: what a command is, and how its answer is printed. Never: a rule of the pool; commands ask the
service through the client.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.find import find_pool
from jupyter_gpupool.client.text import plain

Options = argparse.Namespace


@dataclass(frozen=True)
class Command:
    """One command of the shell.

    Attributes
    ----------
    run
        Does it and returns the exit code.
    arguments
        Adds the command's own arguments to its parser.
    own_arguments
        What follows ``--`` belongs to a program of the user's.
    """

    run: Callable[[Options], int]
    arguments: Callable[[Parser], None] = lambda parser: None
    own_arguments: bool = False


def answer(options: Options, reply: Any, lines: Iterable[str]) -> None:
    """Print the reply as JSON where ``--json`` asks for it, else as lines of text."""
    if options.json:
        print(json.dumps(reply, indent=2))
        return
    for line in lines:
        print(plain(line))


def remark(text: str) -> None:
    """Say something beside the answer, on standard error."""
    print(text, file=sys.stderr, flush=True)


def client_of(options: Options) -> Client:
    """Return a client of the user's pool; its service starts if it has to."""
    return Client(find_pool(os.environ, progress=remark))
