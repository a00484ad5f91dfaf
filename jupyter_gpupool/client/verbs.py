"""The verbs that a shell and a notebook share: arguments, the question to the pool, the answer as lines.

Owns: one table, so that both faces say the same. Never: printing, HTML, or verbs that take more than a
question and an answer (submit, logs, wait, fetch, run).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Callable

from jupyter_gpupool.client import past, render
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.arguments import Parser, job_id
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.tasks import JobName, title

Options = argparse.Namespace


ID = "the job's number, of an array's task 12[3], or last"


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
    parser.add_argument("job", metavar="ID", type=job_id, help=ID)


def some_jobs(parser: Parser) -> None:
    """Let a verb take one job or more."""
    parser.add_argument("jobs", metavar="ID", nargs="+", type=job_id, help=ID)


def resolve(client: Client, name: JobName) -> JobName:
    """Return a job's number, or that of a task; ``last`` is the job submitted last.

    Raises
    ------
    Refused
        ``last``, and there is no job yet.
    """
    if name != "last":
        return name
    newest = client.jobs(limit=1)
    if not newest:
        raise Refused("not_found", "You have no job yet.", hint="Submit one: gpupool submit train.py")
    return int(newest[0]["id"])


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("--state", metavar="NAME", help="only jobs in this state, such as running")
    parser.add_argument("--limit", metavar="N", type=int, default=50, help="at most so many (default 50)")
    parser.add_argument("--array", metavar="ID", type=int, help="the tasks of this array, in their order")


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
    return {"jobs": client.jobs(state=options.state, limit=options.limit, array=options.array)}


def _more_time(parser: Parser) -> None:
    one_job(parser)
    parser.add_argument("time", metavar="TIME", help="how much more, such as 2h")


def _extend(client: Client, options: Options) -> dict[str, Any]:
    return {"jobs": [client.extend(resolve(client, options.job), options.time)]}


def _each(action: Callable[[Client, JobName], dict[str, Any]]) -> Callable[[Client, Options], dict[str, Any]]:
    return lambda client, options: {"jobs": [action(client, resolve(client, name)) for name in options.jobs]}


def _acted(reply: dict[str, Any]) -> list[str]:
    return [f"{title(job)}: {render.standing(job)}." for job in reply["jobs"]]


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
    "extend": Verb("give a running job more time", _extend, _acted, _more_time),
    "report": Verb("what was used, and by whom", _report, past.report, _period),
    "history": Verb(
        "who held what at a moment, and under which policy",
        lambda client, options: client.history(options.at, options.gpu),
        past.history,
        _moment,
    ),
}
