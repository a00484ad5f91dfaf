"""The pool's events on this server's own event bus: one stream, however many browsers look.

Owns: the one stream from the service and the thread that reads it: begun by whoever looks first, opened again
after ever longer pauses, resumed by the id of the last event; saying that the pool was lost and found. Never:
starting a service; what an event means.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.sse import parse_events
from jupyter_gpupool.client.transport import Connection, Stream

SCHEMA = Path(__file__).with_name("events.yaml")
SCHEMA_ID = "https://events.jupyter.org/jupyter_gpupool/pool/v1"
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the first, second ... try in a row; the last stays."""

Emit = Callable[[str, Mapping[str, Any]], None]


class Live:
    """Passes events on to `emit`: their kind, and what the service says of them.

    Parameters
    ----------
    has_ended
        Says whether a service ended on purpose: then it is not waited for.
    emit
        Called in the thread of the stream; raises RuntimeError when the server has ended.
    """

    def __init__(
        self,
        has_ended: Callable[[Connection], bool],
        emit: Emit,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._has_ended = has_ended
        self._emit = emit
        self._sleep = sleep
        self._listener: _Listener | None = None

    def begin(self, connection: Connection) -> None:
        """Listen to the service at `connection`, which has just answered, unless it is listened to."""
        known = self._listener
        if known is not None and known.is_alive():
            if known.connection is connection:
                return
            known.leave()
        self._listener = _Listener(connection, self._has_ended, self._emit, self._sleep)
        self._listener.start()


class _Listener(threading.Thread):
    """The thread that listens to one service; it ends with the server, or when that service has ended."""

    def __init__(
        self,
        connection: Connection,
        has_ended: Callable[[Connection], bool],
        emit: Emit,
        sleep: Callable[[float], None],
    ) -> None:
        super().__init__(name="gpupool-events", daemon=True)
        self.connection = connection
        self._has_ended = has_ended
        self._emit = emit
        self._sleep = sleep
        self._last = ""
        self._left = False
        self._stream: Stream | None = None
        self._is_lost = False
        self._tries = 0

    def leave(self) -> None:
        """Hang up, and say nothing more: the pool is another one now."""
        self._left = True
        if self._stream is not None:
            self._stream.interrupt()

    def run(self) -> None:
        """Listen, again and again."""
        try:
            while not self._left:
                self._listen_once()
                self._say("lost", is_lost=True)
                if self._has_ended(self.connection):
                    return
                self._sleep(PAUSES[min(self._tries, len(PAUSES) - 1)])
                self._tries += 1
        except RuntimeError:
            return

    def _listen_once(self) -> None:
        """Pass on what comes until the service hangs up, or is silent for too long."""
        try:
            with Client(self.connection).open_events(self._last) as stream:
                self._stream = stream
                for event in parse_events(stream.lines()):
                    self._say("found", is_lost=False)
                    self._tries, self._last = 0, event.id or self._last
                    if event.name and isinstance(event.data, dict) and not self._left:
                        self._emit(event.name, event.data)
        except (OSError, PoolError):
            pass

    def _say(self, kind: str, *, is_lost: bool) -> None:
        if self._is_lost != is_lost and not self._left:
            self._is_lost = is_lost
            self._emit(kind, {})
