"""``jupyter gpupool policy check|show|diff|apply|history|rollback``.

Owns: reading the file that was named, and which question to ask. A file is checked here as well, so that
``check`` needs no service. Never: what a policy means.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_gpupool.client import render
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.text import table
from jupyter_gpupool.commands import Command, answer, client_of
from jupyter_gpupool.commands.pool import running
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.policy.problems import PolicyError

Reply = tuple[dict[str, Any], list[str]]


def _arguments(parser: Parser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="|".join(ACTIONS), help="what to do")
    parser.add_argument(
        "what", nargs="?", metavar="FILE", help="the policy file (rollback: a name of the history)"
    )


def _run(options: argparse.Namespace) -> int:
    reply, lines = ACTIONS[options.action](options)
    answer(options, reply, lines)
    return 0


def _check(options: argparse.Namespace) -> Reply:
    text = _text_of(options)
    client = running()
    if client is None:
        try:
            policy = load_policy(text, source=options.what)
        except PolicyError as error:
            raise PoolError("policy_invalid", str(error)) from None
        reply = {"inactive": policy.inactive(), "warnings": []}
        note = "No service is running, so it was not compared with the pool's cards."
        return reply, [f"{options.what} is good.", *reply["inactive"], note]
    reply = client.set_policy(text, apply=False, source=options.what)
    return reply, [f"{options.what} is good.", *reply["inactive"], *reply["warnings"]]


def _show(options: argparse.Namespace) -> Reply:
    reply = client_of(options).policy()
    error = [f"# The file is not in force: {reply['error']}"] if reply["error"] else []
    return reply, [f"# {reply['source']}", *error, reply["text"].rstrip()]


def _diff(options: argparse.Namespace) -> Reply:
    reply = client_of(options).set_policy(_text_of(options), apply=False, source=options.what)
    return reply, _changes(reply) or ["It says what is in force already."]


def _apply(options: argparse.Namespace) -> Reply:
    reply = client_of(options).set_policy(_text_of(options), apply=True, source=options.what)
    return reply, ["In force now.", *_changes(reply), *reply["inactive"], *reply["warnings"]]


def _history(options: argparse.Namespace) -> Reply:
    history = client_of(options).policy()["history"]
    rows = [(past["name"], render.when(past["since"])) for past in history]
    return {"history": history}, table(("name", "in force since"), rows)


def _rollback(options: argparse.Namespace) -> Reply:
    client = client_of(options)
    past = _past(client, options.what)
    reply = client.set_policy(past["text"], apply=True, source=past["name"])
    return reply, ["In force again.", *_changes(reply)]


def _past(client: Client, name: str | None) -> dict[str, Any]:
    """Return the policy of that name, or the one before the present one."""
    history: list[dict[str, Any]] = client.policy()["history"]
    if name is None and len(history) > 1:
        return history[1]
    found = next((past for past in history if past["name"] == name), None)
    if found is None:
        problem = f"The history has no policy {name}." if name else "There was no policy before this one."
        raise Refused("not_found", problem, hint="jupyter gpupool policy history lists them.")
    return found


def _changes(reply: dict[str, Any]) -> list[str]:
    return [*reply["diff"], *reply["over_quota"], *reply["promises"]]


def _text_of(options: argparse.Namespace) -> str:
    if options.what is None:
        raise Refused("invalid_option", f"policy {options.action}: name the policy file.")
    try:
        return Path(options.what).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Refused("invalid_option", f"{options.what} cannot be read: {reason}.") from None


ACTIONS: dict[str, Callable[[argparse.Namespace], Reply]] = {
    "check": _check,
    "show": _show,
    "diff": _diff,
    "apply": _apply,
    "history": _history,
    "rollback": _rollback,
}
POLICY = Command(_run, _arguments)
