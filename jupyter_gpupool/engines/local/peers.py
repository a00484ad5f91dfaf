"""The launcher's socket: who may speak, and the lines that come and go.

Owns: accepting, checking the peer's uid, reading requests, writing replies and events without ever
waiting for a slow client. Never: what a request does.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jupyter_gpupool.client.peercred import peer_of
from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.engines.local.protocol import Lines, ProtocolError, check_request, encode

Handle = Callable[[str, dict[str, Any]], Any]
_MAX_BACKLOG = 64 << 20
_READ = 1 << 18


@dataclass(frozen=True, slots=True)
class Passed:
    """A result that is an open file: its descriptor goes to the client, and is closed here."""

    descriptor: int


class Peers:
    """The clients of the launcher, served from one selector."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        hello: dict[str, Any],
        handle: Handle,
        uids: frozenset[int],
    ) -> None:
        self._selector = selector
        self._hello = hello
        self._handle = handle
        self._uids = uids
        self._peers: dict[socket.socket, _Peer] = {}
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, lambda _events: self._accept(listener))

    def __len__(self) -> int:
        return len(self._peers)

    def broadcast(self, event: dict[str, Any]) -> None:
        """Send `event` to every client."""
        for peer in list(self._peers.values()):
            self._send(peer, event)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            if peer_of(connection).uid not in self._uids:
                connection.close()
                return
            connection.setblocking(False)
            peer = self._peers[connection] = _Peer(connection)
            self._selector.register(
                connection, selectors.EVENT_READ, lambda events: self._serve(peer, events)
            )
            self._send(peer, self._hello)

    def _serve(self, peer: _Peer, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(peer)
        if events & selectors.EVENT_READ and peer.connection in self._peers:
            self._read(peer)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(peer)
            return
        try:
            for message in peer.lines.feed(data):
                self._reply(peer, message.get("id"), self._answer(message))
        except ProtocolError as error:
            self._send(peer, {"id": None, "error": str(error)})
            self._drop(peer)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"result": self._handle(check_request(message), message)}
        except EngineError as error:
            return {"error": str(error)}

    def _reply(self, peer: _Peer, number: object, answer: dict[str, Any]) -> None:
        result = answer.get("result")
        if isinstance(result, Passed):
            self._pass(peer, {"id": number, "result": None}, result.descriptor)
        else:
            self._send(peer, {"id": number, **answer})

    def _pass(self, peer: _Peer, message: dict[str, Any], descriptor: int) -> None:
        """Send a message with a descriptor; a client that leaves no room for it is hung up on."""
        try:
            line = encode(message)
            if peer.outgoing or socket.send_fds(peer.connection, [line], [descriptor]) < len(line):
                self._drop(peer)
        except OSError:
            self._drop(peer)
        finally:
            os.close(descriptor)

    def _send(self, peer: _Peer, message: dict[str, Any]) -> None:
        peer.outgoing += encode(message)
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        if peer.connection not in self._peers:
            return
        try:
            while peer.outgoing:
                del peer.outgoing[: peer.connection.send(peer.outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(peer)
            return
        if len(peer.outgoing) > _MAX_BACKLOG:
            self._drop(peer)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.outgoing else 0)
        self._selector.modify(peer.connection, wanted, lambda events: self._serve(peer, events))

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.connection, None):
            self._selector.unregister(peer.connection)
            peer.connection.close()


class _Peer:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.lines = Lines()
        self.outgoing = bytearray()
