"""``jupyter gpupool …``: the pool in a shell.

Owns: the table of commands, and what the shell sees of a mistake (one sentence on standard error,
exit code 2 for what was typed, 1 for what the pool refused, 130 after Ctrl-C). Never: what a
command does; that is in the module that the table names, loaded only when it is used.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client.arguments import HelpAsked, Parser, nearest
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.verbs import VERBS
from jupyter_gpupool.commands import Command

PROGRAM = "jupyter gpupool"
MISTYPED = ("invalid_option", "unknown_option")


def _asks(verb: str) -> tuple[str, str]:
    return f"look:{verb.upper()}", VERBS[verb].what


# name: (where the command is, what it does in one line), in the order in which help lists them
COMMANDS = {
    "demo": ("demo:DEMO", "a JupyterLab with a simulated pool, gone without a trace at Ctrl-C"),
    "serve": ("pool:SERVE", "start the pool's service (it also starts by itself)"),
    "stop": ("pool:STOP", "stop the service; its jobs end or go on, as you say"),
    "status": ("pool:STATUS", "which pool this is, who serves it, and what it is doing"),
    "submit": ("work:SUBMIT", "queue a script, a notebook or a command; the job outlives this shell"),
    "run": ("run:RUN", "run a command here, on GPUs that are given back when it ends"),
    "jobs": _asks("jobs"),
    "queue": _asks("queue"),
    "quota": _asks("quota"),
    "gpus": _asks("gpus"),
    "show": _asks("show"),
    "why": _asks("why"),
    "logs": ("work:LOGS", "what a job has printed; -f follows it"),
    "wait": ("work:WAIT", "wait until jobs have ended"),
    "cancel": _asks("cancel"),
    "hold": _asks("hold"),
    "release": _asks("release"),
    "requeue": _asks("requeue"),
    "extend": _asks("extend"),
    "fetch": ("work:FETCH", "copy a job's results into a folder"),
    "boost": ("grants:BOOST", "more quota or budget for a while: grant, list, end"),
    "reserve": ("grants:RESERVE", "cards set apart for a group or user: reserve, list, end"),
    "maintenance": ("grants:MAINTENANCE", "cards set apart for nobody: plan, list, end"),
    "request": ("grants:REQUEST", "ask for a boost, a reservation, more time or a higher budget"),
    "requests": ("grants:REQUESTS", "what you have asked for, and what you may decide"),
    "approve": ("grants:APPROVE", "grant what somebody has asked for, with a sentence"),
    "deny": ("grants:DENY", "deny what somebody has asked for, with a sentence"),
    "drain": ("grants:DRAIN", "let a node take no new work; what runs there goes on"),
    "undrain": ("grants:UNDRAIN", "let a node take work again"),
    "actions": ("grants:ACTIONS", "who has granted, ended, drained or changed what"),
    "policy": ("policy:POLICY", "check, show, compare, apply or roll back the policy"),
    "report": ("report:REPORT", VERBS["report"].what),
    "history": _asks("history"),
    "simulate": ("simulate:SIMULATE", "what a policy would do with a workload, in seconds instead of weeks"),
    "doctor": ("doctor:DOCTOR", "check what the pool needs on this machine"),
    "install": ("install:INSTALL", "make this server ready for a JupyterHub with a pool"),
    "launcher": ("launcher:LAUNCHER", "run by root: starts jobs and servers as their users' accounts"),
    "login": ("login:LOGIN", "use the pool of a JupyterHub from this terminal"),
    "logout": ("login:LOGOUT", "forget that Hub's pool"),
    "enable": ("settings:ENABLE", "let jobs of another Python use should_stop() and progress()"),
    "config": ("settings:CONFIG", "your own settings: variables that jobs get, and what you are told"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except HelpAsked as asked:
        print(asked)
        return 0
    except PoolError as error:
        _say(words, error)
        return 2 if error.code in MISTYPED else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        raise HelpAsked(_help())
    if words[0] == "--version":
        raise HelpAsked(__version__)
    name = words[0]
    if name not in COMMANDS:
        raise Refused(
            "invalid_option",
            f"{PROGRAM} has no command {name!r}.{nearest(name, COMMANDS)}",
            hint=f"{PROGRAM} --help lists them.",
        )
    where, what = COMMANDS[name]
    command = _load(where)
    parser = Parser(f"{PROGRAM} {name}", what)
    parser.add_argument("--json", action="store_true", help="answer in JSON, for programs")
    parser.add_argument("--simulate", metavar="POOL", help="use a simulated pool, such as 4x8x32GiB")
    command.arguments(parser)
    mine, own = parser.own(words[1:]) if command.own_arguments else (words[1:], [])
    options = parser.read(mine)
    options.own = own
    if options.simulate:
        os.environ["GPUPOOL_SIMULATE"] = options.simulate
    return command.run(options)


def _load(where: str) -> Command:
    module, name = where.split(":")
    command: Command = getattr(importlib.import_module(f"jupyter_gpupool.commands.{module}"), name)
    return command


def _help() -> str:
    lines = [f"usage: {PROGRAM} COMMAND [OPTIONS]", "", "commands:"]
    lines += [f"  {name:<11} {what}" for name, (_, what) in COMMANDS.items()]
    lines += ["", f"{PROGRAM} COMMAND --help says more. Every command takes --json."]
    return "\n".join(lines)


def _say(words: Sequence[str], error: PoolError) -> None:
    if "--json" in words[: words.index("--") if "--" in words else None]:
        print(json.dumps({"error": error.as_dict()}))
    else:
        print(error, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
