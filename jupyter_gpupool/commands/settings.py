"""Settings of one's own: which variables are always sent, and which other Pythons know the job helpers.

Owns: the commands ``config`` and ``enable``. Never: where the settings are kept.
"""

from __future__ import annotations

import argparse
import os

from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.config import always_send, set_always_send
from jupyter_gpupool.client.enable import enable
from jupyter_gpupool.commands import Command, answer


def _config_arguments(parser: Parser) -> None:
    parser.add_argument("setting", choices=("always-send",), metavar="always-send", help="the setting")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="variables that jobs always get; none: list them"
    )
    parser.add_argument("--not", dest="never", action="store_true", help="no longer send them")


def _config(options: argparse.Namespace) -> int:
    for name in options.names:
        set_always_send(name, os.environ, send=not options.never)
    names = always_send(os.environ)
    answer(options, {"always_send": list(names)}, [f"Always sent to jobs: {', '.join(names) or 'nothing'}."])
    return 0


def _enable_arguments(parser: Parser) -> None:
    parser.add_argument("python", metavar="PYTHON", help="the interpreter, such as ~/conda/envs/x/bin/python")


def _enable(options: argparse.Namespace) -> int:
    written = enable(options.python, os.environ)
    lines = [
        f"{options.python} can now import jupyter_gpupool and gpupool_job.",
        f"One file was written: {written}. Remove it to undo this.",
    ]
    answer(options, {"python": options.python, "file": str(written)}, lines)
    return 0


CONFIG = Command(_config, _config_arguments)
ENABLE = Command(_enable, _enable_arguments)
