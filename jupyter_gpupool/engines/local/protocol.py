"""What the service and the launcher say to each other: one JSON object a line, over a Unix socket.

Owns: the message schemas, their checking, and where the socket lies. Never: a connection.

Requests carry an ``id``, replied to with the same ``id`` and either ``result`` or ``error`` (a
sentence). Events carry ``event`` and are sent to every client.

=========  ==============================  =====================================================
request    fields                          result
=========  ==============================  =====================================================
start      spec (a `WorkSpec`)             a `Started`
stop       key, cause, grace_s             null
extend     key, limit_s                    whether it runs, and was not asked to end
list                                       list of `Started` and `Ended`, told apart by ``type``
forget     key                             null
left       key                             the processes of the attempt, known or not
retire                                     null; the launcher leaves once no job is alive
quit                                       null; the launcher leaves at once, its jobs go on
open       job, parts                      null, with the file's descriptor; without: no such file
files      job, parts                      list of [name, size, modified]
newest     job, parts                      null, with the descriptor of a socket on which comes, in an
                                           answer of its own: when a file there, or below, was last
                                           written; or null
remove     job                             null
=========  ==============================  =====================================================

=========  ==============================  =====================================================
event      fields                          sent
=========  ==============================  =====================================================
hello      pid, version, boot_id, root,    on connecting; ``root``: it runs as root, ``system``: it
           system, survival                never leaves by itself, and works for accounts only
ended      ended (an `Ended`)              when an attempt is over; again when its tree is gone
=========  ==============================  =====================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from jupyter_gpupool.engines.base import STOP_CAUSES, Ended, EngineError, Started, WorkSpec

MAX_LINE = 16 << 20
SOCKET = "launcher.sock"
_TOO_MANY = 1 << 53

_FIELDS: dict[str, dict[str, type]] = {
    "start": {"spec": dict},
    "stop": {"key": str, "cause": str, "grace_s": int},
    "extend": {"key": str, "limit_s": int},
    "list": {},
    "forget": {"key": str},
    "left": {"key": str},
    "retire": {},
    "quit": {},
    "open": {"job": int, "parts": list},
    "files": {"job": int, "parts": list},
    "newest": {"job": int, "parts": list},
    "remove": {"job": int},
}
_SPEC_TYPES: dict[str, tuple[type, ...]] = {
    "key": (str,),
    "job": (int,),
    "attempt": (int,),
    "kind": (str,),
    "argv": (list, tuple),
    "environment": (dict,),
    "workdir": (str,),
    "snapshot": (str, type(None)),
    "snapshot_sha256": (str, type(None)),
    "folder": (str,),
    "limit_s": (int,),
    "grace_s": (int,),
    "cpus_milli": (int,),
    "memory_mib": (int,),
    "owner": (str,),
    "entry": (dict,),
    "user": (str, type(None)),
}


class ProtocolError(EngineError):
    """A message that does not follow its schema."""


def socket_path(run_directory: int) -> str:
    """Path of the socket through an open `run_directory`: short however deep the folder lies."""
    return f"/proc/self/fd/{run_directory}/{SOCKET}"


def open_run_directory(home: Path, *, make: bool = True) -> int:
    """Open ``<home>/run`` to reach what is in it; with `make`, made 0700 if it is not there."""
    run = home / "run"
    if make:
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(run, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def encode(message: dict[str, Any]) -> bytes:
    """One line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Lines:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield each message that `data` completes.

        Raises
        ------
        ProtocolError
            A line that is no JSON object, or longer than `MAX_LINE`.
        """
        self._pending += data
        while (end := self._pending.find(b"\n")) >= 0:
            line = bytes(self._pending[:end])
            del self._pending[: end + 1]
            yield _message(line)
        if len(self._pending) > MAX_LINE:
            raise ProtocolError(
                f"A message of over {MAX_LINE} bytes was sent; the limit is {MAX_LINE} bytes."
            )


def check_request(message: dict[str, Any]) -> str:
    """Return the request's name.

    Raises
    ------
    ProtocolError
        Unknown request, or a field missing or of the wrong type.
    """
    name = message.get("op")
    if not isinstance(name, str) or name not in _FIELDS:
        raise ProtocolError(f"Unknown request {name!r}; known are {', '.join(_FIELDS)}.")
    for field, kind in _FIELDS[name].items():
        if not _is(message.get(field), (kind,)):
            raise ProtocolError(f"The request {name!r} needs {field!r} as {kind.__name__}.")
    if not all(isinstance(part, str) for part in message.get("parts", ())):
        raise ProtocolError(f"The parts of a path in the request {name!r} must be str.")
    if name == "stop" and message["cause"] not in STOP_CAUSES:
        raise ProtocolError(f"Unknown cause {message['cause']!r}; known are {', '.join(STOP_CAUSES)}.")
    return name


def spec_from_json(value: dict[str, Any]) -> WorkSpec:
    """Check and build a `WorkSpec`.

    Raises
    ------
    ProtocolError
        Names the first field that is wrong.
    """
    unknown = set(value) - set(_SPEC_TYPES)
    if unknown:
        raise ProtocolError(f"A work specification has no {min(unknown)!r}.")
    for name, kinds in _SPEC_TYPES.items():
        if not _is(value.get(name), kinds):
            raise ProtocolError(f"{name!r} of a work specification must be {kinds[0].__name__}.")
    spec = WorkSpec(**{**value, "argv": tuple(value["argv"])})
    texts = (*spec.argv, *spec.environment, *spec.environment.values(), spec.workdir)
    if not all(map(_can_be_passed, texts)):
        raise ProtocolError(f"Arguments and environment of {spec.key} must be text without NUL characters.")
    if not spec.argv:
        raise ProtocolError(f"The work {spec.key} names no program to run.")
    if spec.key != f"{spec.job}/{spec.attempt}" or spec.job < 0 or spec.attempt < 0:
        raise ProtocolError(f"The key {spec.key!r} must read {spec.job}/{spec.attempt}: its job and attempt.")
    if not os.path.isabs(spec.folder):
        raise ProtocolError(f"The folder of {spec.key} must be an absolute path, not {spec.folder!r}.")
    if spec.limit_s <= 0 or spec.grace_s < 0:
        raise ProtocolError(f"The limit of {spec.key} must be over 0 s and its grace not below 0 s.")
    return spec


def report_to_json(report: Started | Ended) -> dict[str, Any]:
    """`Started` or `Ended` with the ``type`` that tells them apart."""
    return {"type": type(report).__name__, **asdict(report)}


def report_from_json(value: dict[str, Any]) -> Started | Ended:
    """Undo `report_to_json`."""
    return ended_from_json(value) if value["type"] == "Ended" else Started(**_known(Started, value))


def ended_from_json(value: dict[str, Any]) -> Ended:
    """Build an `Ended`; fields of a newer version are left out."""
    return Ended(**_known(Ended, value))


def _known(kind: type[Started] | type[Ended], value: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: item for name, item in value.items() if name in names}


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise ProtocolError("A message must be one JSON object on one line.")
    return message


def _can_be_passed(text: object) -> bool:
    """Whether `text` can be an argument of a program."""
    try:
        return isinstance(text, str) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _is(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether a value is of one of the types; a whole number must be one that a clock can count to."""
    if isinstance(value, bool):
        return False
    return isinstance(value, kinds) and not (isinstance(value, int) and abs(value) >= _TOO_MANY)
