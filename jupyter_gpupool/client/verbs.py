"""The verbs that a shell and a notebook share: arguments, the question to the pool, the answer as lines.

Owns: one table, so that both faces say the same. Never: printing, HTML, or verbs that take more than a
question and an answer (submit, logs, wait, fetch, run).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Callable, Union

from jupyter_gpupool.client import past, render
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.arguments import Parser, job_id
from jupyter_gpupool.client.errors import Refused

Options = argparse.Namespace
JobName = Union[int, str]


def _nothing(parser: Parser) -> None:
    """Take no arguments."""


@dataclass(frozen=True)
class Verb:
    """A question to the pool and its answer.

    Attributes
    ----------
    what
        The verb in one line, for help.
    ask
        Gets the answer, a JSON object.
    lines
        Says the answer in plain text.
    arguments
        Adds the verb's own arguments to a parser.
    """

    what: str
    ask: Callable[[Client, Options], dict[str, Any]]
    lines: Callable[[dict[str, Any]], Iterable[str]]
    arguments: Callable[[Parser], None] = _nothing


def one_job(parser: Parser) -> None:
    """Let a verb take one job."""
    parser.add_argument("job", metavar="ID", type=job_id, help="the job's number, or last")


def some_jobs(parser: Parser) -> None:
    """Let a verb take one job or more."""
    parser.add_argument("jobs", metavar="ID", nargs="+", type=job_id, help="the job's number, or last")


def resolve(client: Client, name: JobName) -> int:
    """Return a job's number; ``last`` is the job submitted last.

    Raises
    ------
    Refused
        ``last``, and there is no job yet.
    """
    if isinstance(name, int):
        return name
    newest = client.jobs(limit=1)
    if not newest:
        raise Refused("not_found", "You have no job yet.", hint="Submit one: gpupool submit train.py")
    return int(newest[0]["id"])


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("--state", metavar="NAME", help="only jobs in this state, such as running")
    parser.add_argument("--limit", metavar="N", type=int, default=50, help="at most so many (default 50)")


def _period(parser: Parser) -> None:
    parser.add_argument("--days", metavar="N", type=int, default=7, help="of the last N days (default 7)")
    parser.add_argument(
        "--week", metavar="WEEK", nargs="?", const="this", help="of a week: this, last, or such as 2026-W42"
    )
    parser.add_argument(
        "--month", metavar="MONTH", nargs="?", const="this", help="of a month: this, last, or such as 2026-10"
    )
    parser.add_argument("--group", metavar="NAME", help="only this group, with all below it")
    parser.add_argument("--user", metavar="NAME", help="only what this user used")


def _moment(parser: Parser) -> None:
    parser.add_argument("--at", metavar="TIME", help='such as "2026-10-12 03:00", or 03:00 (default: now)')
    parser.add_argument("--gpu", metavar="CARD", help="only this card: node1:0, or its UUID")


def _report(client: Client, options: Options) -> dict[str, Any]:
    asked = {name: getattr(options, name) for name in ("days", "week", "month", "group", "user")}
    return client.report(**asked)


def _jobs(client: Client, options: Options) -> dict[str, Any]:
    return {"jobs": client.jobs(state=options.state, limit=options.limit)}


def _each(action: Callable[[Client, int], dict[str, Any]]) -> Callable[[Client, Options], dict[str, Any]]:
    return lambda client, options: {"jobs": [action(client, resolve(client, name)) for name in options.jobs]}


def _acted(reply: dict[str, Any]) -> list[str]:
    return [f"Job {job['id']}: {render.standing(job)}." for job in reply["jobs"]]


VERBS = {
    "jobs": Verb("my jobs", _jobs, lambda reply: render.jobs(reply["jobs"]), _list_arguments),
    "queue": Verb(
        "all that waits, in order, and all that runs", lambda client, _: client.queue(), render.queue
    ),
    "quota": Verb("my quota, my group's, and what is used", lambda client, _: client.quota(), render.quota),
    "gpus": Verb("the cards and who uses them", lambda client, _: client.pool(), render.pool),
    "show": Verb(
        "everything about one job",
        lambda client, options: client.job(resolve(client, options.job)),
        render.job,
        one_job,
    ),
    "why": Verb(
        "what a job waits for, or why it ended as it did",
        lambda client, options: client.job(resolve(client, options.job)),
        render.why,
        one_job,
    ),
    "cancel": Verb("end jobs, or take them out of the queue", _each(Client.cancel), _acted, some_jobs),
    "hold": Verb("keep queued jobs from starting", _each(Client.hold), _acted, some_jobs),
    "release": Verb("let held jobs start", _each(Client.release), _acted, some_jobs),
    "requeue": Verb("stop jobs and put them back into the queue", _each(Client.requeue), _acted, some_jobs),
    "report": Verb("what was used, and by whom", _report, past.report, _period),
    "history": Verb(
        "who held what at a moment, and under which policy",
        lambda client, options: client.history(options.at, options.gpu),
        past.history,
        _moment,
    ),
}
