"""What was: ``report``, as text, CSV or a page with plots, and ``history``.

Owns: where a report is written to. Never: its figures, or its words (see `client.past`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jupyter_gpupool.client import past
from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.verbs import VERBS
from jupyter_gpupool.commands import Command, answer, client_of, remark
from jupyter_gpupool.commands.report_page import html


def _arguments(parser: Parser) -> None:
    VERBS["report"].arguments(parser)
    parser.add_argument("--by", choices=past.BY, help="one table, by user, group, day or card")
    parser.add_argument(
        "--csv", action="store_true", help="rows for a spreadsheet (by user, or as --by says)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with plots")


def _report(options: argparse.Namespace) -> int:
    if options.csv and options.json:
        raise Refused(
            "invalid_option", "The answer is CSV or JSON.", hint="Leave one of --csv and --json out."
        )
    reply = VERBS["report"].ask(client_of(options), options)
    if options.html:
        _write(Path(options.html), html(reply))
        remark(f"Written to {options.html}.")
    if options.csv:
        sys.stdout.write(past.as_csv(reply, options.by or "user"))
        return 0
    if options.json or not options.html:
        answer(options, reply, past.report(reply, by=options.by))
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refused("invalid_option", f"{path} cannot be written: {error.strerror}.") from None


REPORT = Command(_report, _arguments)
