"""What holds beside the policy: boost, reserve, maintenance, requests and their answers, drain, actions.

Owns: how each is typed, and which question it asks. Never: who may grant what; the service says that.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

from jupyter_gpupool.client import grants as text
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.commands import Command, answer, client_of

Options = argparse.Namespace
Reply = tuple[Any, Iterable[str]]

KINDS = ("boost", "reservation", "time", "budget")


def _command(ask: Callable[[Client, Options], Reply], arguments: Callable[[Parser], None]) -> Command:
    def run(options: Options) -> int:
        reply, lines = ask(client_of(options), options)
        answer(options, reply, lines)
        return 0

    return Command(run, arguments)


# -- boosts, reservations, maintenance -------------------------------------------------------------


def _boost_arguments(parser: Parser) -> None:
    parser.add_argument(
        "group", nargs="?", metavar="GROUP", help="who gets more; without it, all boosts are listed"
    )
    parser.add_argument("--user", metavar="NAME", help="only this user of the group: more cards than usual")
    _amounts(parser)
    _term(parser)
    _source(parser)
    _end(parser, "boost")


def _boost(client: Client, options: Options) -> Reply:
    if options.end is not None:
        reply = client.end_grant("boosts", options.end)
        return reply, text.boost(reply)
    if options.group is None:
        reply = client.granted("boosts")
        return reply, text.boosts(reply["boosts"])
    body = _given(options, "group", "user", *_AMOUNTS, *_TERM, "out_of")
    reply = client.grant("boosts", body)
    return reply, text.boost(reply)


def _reserve_arguments(parser: Parser) -> None:
    _cards(parser)
    _whom(parser)
    _term(parser)
    _source(parser)
    _end(parser, "reservation")


def _reserve(client: Client, options: Options) -> Reply:
    return _set_apart(
        client, options, {"groups": options.groups, "users": options.users, **_given(options, "out_of")}
    )


def _maintenance_arguments(parser: Parser) -> None:
    _cards(parser)
    _term(parser)
    _source(parser)
    _end(parser, "maintenance")


def _maintenance(client: Client, options: Options) -> Reply:
    return _set_apart(client, options, {"maintenance": True, **_given(options, "out_of")})


def _set_apart(client: Client, options: Options, whom: dict[str, Any]) -> Reply:
    if options.end is not None:
        reply = client.end_grant("reservations", options.end)
        return reply, text.reservation(reply)
    body = _given(options, *_CARDS, *_TERM)
    if not (body or whom.get("groups") or whom.get("users")):
        reply = client.granted("reservations")
        found = [each for each in reply["reservations"] if each["maintenance"] or not whom.get("maintenance")]
        return reply, text.reservations(found)
    reply = client.grant("reservations", body | whom)
    return reply, text.reservation(reply)


# -- requests --------------------------------------------------------------------------------------


def _request_arguments(parser: Parser) -> None:
    parser.add_argument("kind", choices=KINDS, metavar="|".join(KINDS), help="what to ask for")
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="time: the job's number and how much more, 3h"
    )
    _amounts(parser)
    parser.add_argument("--card", dest="cards", action="append", metavar="CARDS", help="node1:0-3, or a UUID")
    _places(parser)
    _whom(parser)
    _term(parser)
    parser.add_argument("--group", metavar="NAME", help="for which of your groups (default: yours)")
    parser.add_argument("--whole-group", action="store_true", help="boost: for the group, not for yourself")


def _request(client: Client, options: Options) -> Reply:
    reply = client.grant("requests", _wish(options))
    return reply, text.request(reply)


def _wish(options: Options) -> dict[str, Any]:
    if not options.because:
        raise Refused(
            "invalid_option", "Say why, for those who decide.", hint='Add --because "the paper is due".'
        )
    if options.words and options.kind != "time":
        raise Refused("invalid_option", f"{options.words[0]!r} is one argument too many.")
    if options.kind == "time":
        if len(options.words) != 2 or not options.words[0].lstrip("#").isdecimal():
            raise Refused("invalid_option", "Name the job and how much more: request time 17 3h")
        wants: dict[str, Any] = {"work": int(options.words[0].lstrip("#")), "time": options.words[1]}
    elif options.kind == "reservation":
        wants = _given(options, "cards", "gpus", *_PLACES, "start", "until", "groups", "users")
    else:
        wants = _given(options, *_AMOUNTS, "start", "until")
        if options.whole_group:
            wants["user"] = None
    return {"kind": options.kind, "group": options.group, "wants": wants, "because": options.because}


def _requests_arguments(parser: Parser) -> None:
    parser.add_argument("--all", action="store_true", help="also those that are decided")
    parser.add_argument("--withdraw", metavar="ID", type=int, help="take one of yours back")


def _requests(client: Client, options: Options) -> Reply:
    if options.withdraw is not None:
        reply = client.end_grant("requests", options.withdraw)
        return reply, text.request(reply)
    reply = client.granted("requests", all="true" if options.all else None)
    return reply, text.requests(reply["requests"])


def _answer_arguments(parser: Parser) -> None:
    parser.add_argument("request", metavar="ID", type=int, help="the request's number")
    parser.add_argument("words", metavar="SENTENCE", nargs="+", help="your answer, in a sentence")
    _source(parser)


def _decide(verb: str) -> Callable[[Client, Options], Reply]:
    def decide(client: Client, options: Options) -> Reply:
        body = {"answer": " ".join(options.words), **_given(options, "out_of")}
        reply = client.grant(f"requests/{options.request}/{verb}", body)
        return reply, text.request(reply)

    return decide


# -- nodes, and who did what -----------------------------------------------------------------------


def _node_arguments(parser: Parser) -> None:
    parser.add_argument("node", metavar="NODE", help="the node's name")


def _drain_arguments(parser: Parser) -> None:
    _node_arguments(parser)
    parser.add_argument("--because", default="", metavar="TEXT", help="why; those who wait are told")


def _drain(client: Client, options: Options) -> Reply:
    reply = client.drain(options.node, options.because)
    return reply, text.drain(reply)


def _undrain(client: Client, options: Options) -> Reply:
    reply = client.undrain(options.node)
    return reply, text.drain(reply)


def _actions_arguments(parser: Parser) -> None:
    parser.add_argument("--limit", metavar="N", type=int, default=50, help="at most so many (default 50)")


def _actions(client: Client, options: Options) -> Reply:
    reply = client.granted("actions", limit=options.limit)
    return reply, text.actions(reply["actions"])


# -- options that several share --------------------------------------------------------------------

_AMOUNTS = ("gpus", "gpus_by_type", "cpus", "mem", "gpu_hours")
_PLACES = ("node", "partition", "gpu_type")
_CARDS = ("cards", "gpus", *_PLACES)
_TERM = ("start", "until", "because")


def _amounts(parser: Parser) -> None:
    parser.add_argument("--gpus", metavar="N", help="how many GPUs")
    parser.add_argument(
        "--gpus-of", dest="gpus_by_type", action="append", metavar="TYPE=N", help="of one type"
    )
    parser.add_argument("--cpus", metavar="N", help="how many CPU cores")
    parser.add_argument("--mem", metavar="SIZE", help="how much host memory, such as 64GiB")
    parser.add_argument("--gpu-hours", metavar="N", help="GPU hours, into the budget of the present period")


def _cards(parser: Parser) -> None:
    parser.add_argument(
        "cards", nargs="*", metavar="CARDS", help="node1:0-3, or UUIDs; with no argument, a list"
    )
    parser.add_argument("--gpus", metavar="N", help="so many cards, which the pool chooses")
    _places(parser)


def _places(parser: Parser) -> None:
    parser.add_argument("--node", metavar="NAME", help="cards of this node")
    parser.add_argument("--partition", metavar="NAME", help="cards of this partition")
    parser.add_argument("--gpu-type", metavar="TYPE", help="cards of this type")


def _whom(parser: Parser) -> None:
    parser.add_argument(
        "--for", dest="groups", action="append", default=[], metavar="GROUP", help="for this group"
    )
    parser.add_argument(
        "--user", dest="users", action="append", default=[], metavar="NAME", help="for this user"
    )


def _term(parser: Parser) -> None:
    parser.add_argument(
        "--from", dest="start", metavar="TIME", help='from when: 2026-07-01, "2026-07-01 18:00", 18:00, 2h'
    )
    parser.add_argument(
        "--until", metavar="TIME", help="until when: likewise; a duration counts from the start"
    )
    parser.add_argument("--because", metavar="TEXT", help="why")


def _source(parser: Parser) -> None:
    parser.add_argument("--out-of", metavar="GROUP", help="the group that gives it (a manager's: one's own)")


def _end(parser: Parser, what: str) -> None:
    parser.add_argument("--end", metavar="ID", type=int, help=f"end a {what} before its time")


def _given(options: Options, *names: str) -> dict[str, Any]:
    """Return the options that were typed, as the service takes them."""
    found = {name: getattr(options, name) for name in names if getattr(options, name) not in (None, [])}
    if "gpus_by_type" in found:
        found["gpus_by_type"] = dict(map(_typed, found["gpus_by_type"]))
    return found


def _typed(word: str) -> tuple[str, str]:
    name, equals, amount = word.partition("=")
    if not (name and equals and amount):
        raise Refused("invalid_option", f"--gpus-of {word}: write the type and how many, such as h200=2.")
    return name, amount


BOOST = _command(_boost, _boost_arguments)
RESERVE = _command(_reserve, _reserve_arguments)
MAINTENANCE = _command(_maintenance, _maintenance_arguments)
REQUEST = _command(_request, _request_arguments)
REQUESTS = _command(_requests, _requests_arguments)
APPROVE = _command(_decide("approve"), _answer_arguments)
DENY = _command(_decide("deny"), _answer_arguments)
DRAIN = _command(_drain, _drain_arguments)
UNDRAIN = _command(_undrain, _node_arguments)
ACTIONS = _command(_actions, _actions_arguments)
