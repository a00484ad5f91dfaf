"""From a line to a prepared request: what shell, magics and Python functions have in common.

Owns: which options a line has, and which kind of work a target is. Never: sends anything.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from jupyter_gpupool.client import options as table
from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.options import CONDUCT, OPTIONS, Options
from jupyter_gpupool.client.request import Prepared, prepare_command, prepare_notebook, prepare_script

REQUEST = tuple(option for option in OPTIONS if option not in CONDUCT)
LEASE = tuple(option for option in table.RESOURCES if option.dest != "gpu_compute")


def path_arguments(parser: Parser) -> None:
    """Let a line submit a script, a notebook, or the command after ``--``."""
    table.add_options(parser)
    parser.add_argument(
        "target",
        metavar="FILE",
        nargs="?",
        help="a script, or a notebook (.ipynb); without one, -- COMMAND ARG ... is run as it stands",
    )
    parser.add_argument(
        "args", metavar="ARG", nargs="*", help="the script's own arguments; put -- before its options"
    )


def prepare_line(line: argparse.Namespace) -> Prepared:
    """Prepare the script or notebook that a line names, or else the command after ``--``.

    Raises
    ------
    Refused
        There is neither; or see `jupyter_gpupool.client.request`.
    """
    options = table.given(line, REQUEST)
    if line.target is not None:
        return prepare_path(line.target, [*line.args, *line.own], options)
    if not line.own:
        raise Refused(
            "invalid_option", "There is nothing to submit.", hint="Name a FILE, or a command: -- COMMAND ARG"
        )
    return prepare_command(line.own, options)


def prepare_path(path: str, args: Sequence[str], options: Options) -> Prepared:
    """Prepare a script, or a notebook when the name ends with ``.ipynb``.

    Raises
    ------
    Refused
        See `jupyter_gpupool.client.request`.
    """
    if not path.endswith(".ipynb"):
        return prepare_script(path, args, options)
    if args:
        raise Refused(
            "invalid_option",
            f"{args[0]!r}: a notebook takes no arguments.",
            hint="Give it parameters with -p name=value.",
        )
    return prepare_notebook(path, options)
