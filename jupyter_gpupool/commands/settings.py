"""Settings of one's own: variables that are always sent, what jobs tell, other Pythons with the job helpers.

Owns: the commands ``config`` and ``enable``. Never: where the settings are kept.
"""

from __future__ import annotations

import argparse
import os

from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.config import always_send, notify, set_always_send, set_notify
from jupyter_gpupool.client.enable import enable
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.commands import Command, answer


def _config_arguments(parser: Parser) -> None:
    parser.add_argument(
        "setting",
        choices=("always-send", "notify"),
        metavar="always-send|notify",
        help="always-send: variables that jobs always get; notify: of what jobs tell you that do not say",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="names of variables; or end, fail, start, stop, none, default; without any: show the setting",
    )
    parser.add_argument("--not", dest="never", action="store_true", help="no longer send these variables")


def _config(options: argparse.Namespace) -> int:
    if options.setting == "notify":
        return _notify(options)
    for name in options.names:
        set_always_send(name, os.environ, send=not options.never)
    names = always_send(os.environ)
    answer(options, {"always_send": list(names)}, [f"Always sent to jobs: {', '.join(names) or 'nothing'}."])
    return 0


def _notify(options: argparse.Namespace) -> int:
    chosen = [name for names in options.names for name in names.split(",")]
    if options.never:
        raise Refused(
            "invalid_option", "--not is for always-send.", hint="To hear of nothing: config notify none"
        )
    if chosen:
        set_notify([] if chosen == ["default"] else chosen, os.environ)
    names = notify(os.environ)
    if names == ("none",):
        said = "Jobs tell you of nothing."
    elif names:
        said = f"Jobs tell you of: {', '.join(names)}."
    else:
        said = "Jobs tell you what your site's policy says."
    answer(options, {"notify": list(names)}, [said])
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
