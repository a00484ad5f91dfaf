"""Server-sent events, read from lines.

Owns: the format. Never: the connection, or what an event means.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Event(NamedTuple):
    """One event; a heartbeat has no name."""

    id: str
    name: str
    data: Any


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events in `lines`; comments, which the service sends as heartbeats, come without a name."""
    last_id, name = "", ""
    data: list[str] = []
    for line in lines:
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if line.startswith(":"):
            yield Event(last_id, "", None)
        elif field == "id":
            last_id = value
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif not line and data:
            yield Event(last_id, name or "message", _loads("\n".join(data)))
            name, data = "", []


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
