"""`jupyter gpupool demo`: the working product, gone without a trace at Ctrl-C.

Owns: the command's options, and what an interrupt means. Never: what is started (see `hub` and `lab`).
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
from pathlib import Path

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.commands import Command
from jupyter_gpupool.commands.demo.processes import say


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options to the parser of its subcommand."""
    parser.add_argument("--lab", action="store_true", help="a JupyterLab for one person, without a Hub")
    parser.add_argument(
        "--port", type=int, default=None, help="port on this machine (default: 8000, of a Lab 8888)"
    )
    parser.add_argument(
        "--gpus",
        choices=["simulated", "real"],
        default="simulated",
        help="real: use this machine's NVIDIA cards",
    )
    parser.add_argument("--dir", type=Path, default=Path(".demo"), help="where the demo keeps its files")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--allow-root", action="store_true", help="run as root all the same")


def run(options: argparse.Namespace) -> int:
    """Run the demo until Ctrl-C (or SIGTERM); return the exit status."""
    if os.geteuid() == 0 and not options.allow_root:
        raise Refused(
            "demo", "You are root, and notebooks would run as root. Use another account, or add --allow-root."
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = "lab" if options.lab else "hub"
    try:
        importlib.import_module(f"jupyter_gpupool.commands.demo.{chosen}").run(options)
    except KeyboardInterrupt:
        say("The demo has ended; its jobs and its service are gone.")
    return 0


DEMO = Command(run, add_options)
