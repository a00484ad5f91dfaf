"""``login`` and ``logout``: a pool behind a Hub, from a terminal anywhere.

Owns: the question for a token, and what is said of the login. Never: a token in an argument, in a message or
in an answer.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys

from jupyter_gpupool.client import logins
from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.find import place
from jupyter_gpupool.client.hub import hub_address, sign_in
from jupyter_gpupool.commands import Command, answer, remark


def _login_arguments(parser: Parser) -> None:
    parser.add_argument("url", metavar="URL", help="your JupyterHub's address, such as https://hub.example")


def _login(options: argparse.Namespace) -> int:
    hub = hub_address(options.url)
    login, narrowed = sign_in(hub, _asked_for_token(hub))
    logins.store(login, os.environ)
    until = f"until {login.expires_at}" if login.expires_at else "until the token is revoked or expires"
    token = f"the token that you pasted is not needed any more: you can revoke it at {hub}/hub/token"
    if not narrowed:
        token = "the Hub gave no narrower token for the one that you pasted, so that one is kept"
    shown = {"hub": hub, "url": login.url, "user": login.user, "expires_at": login.expires_at}
    answer(
        options,
        {**shown, "narrowed": narrowed},
        [f"Logged in at {hub} as {login.user}, {until}; {token}."],
    )
    here = place(os.environ).url
    if here != login.url:
        remark(f"In this terminal the environment names another pool, which comes first: {here}.")
    return 0


def _asked_for_token(hub: str) -> str:
    """Return what is pasted, or piped in; it is never shown."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    remark(f"Make a token at {hub}/hub/token, and paste it here; it is not shown.")
    try:
        return getpass.getpass("Token: ").strip()
    except EOFError:
        raise Refused("invalid_token", "No token was given.") from None


def _logout(options: argparse.Namespace) -> int:
    path = logins.login_file(os.environ)
    known = path.exists()
    hub = _hub_of_login()
    logins.forget(os.environ)
    lines = ["You were not logged in."]
    if known:
        where = f"{hub}/hub/token" if hub else "your Hub's page of tokens"
        lines = [
            f"Logged out: the token is removed from here. To make it void everywhere, revoke it at {where}."
        ]
    answer(options, {"logged_out": known, "hub": hub}, lines)
    return 0


def _hub_of_login() -> str | None:
    """Return where one was logged in, as far as the file can be read."""
    try:
        login = logins.stored(os.environ)
    except Refused:
        return None
    return login.hub if login else None


LOGIN = Command(_login, _login_arguments)
LOGOUT = Command(_logout)
