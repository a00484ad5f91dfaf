"""The service's answers, as the Hub reads them.

Owns: `Spawn` and `Work`, and one sentence for an answer that does not have their shape. Never: a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal

from jupyter_gpupool.client.errors import PoolError

Json = Mapping[str, Any]
State = Literal["waiting", "held", "over"]
STATES: Mapping[str, State] = {"requested": "waiting", "held": "held"}
"""The service's words for a lease that is not over."""


class Unusable(PoolError):  # noqa: N818
    """The service cannot decide now, or not for this Hub: nothing is known about the request."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a server may run as, by its lease; see `WorkSpec`."""

    key: str
    job: int
    attempt: int
    folder: str
    limit_s: int
    grace_s: int
    cpus_milli: int
    memory_mib: int
    user: str | None


@dataclass(frozen=True, slots=True)
class Spawn:
    """How a request for a server's lease stands.

    `waiting` says why it waits, `reason` why it is over; `environment` and `work` are there while it is held.
    """

    lease: int
    state: State
    waiting: Json
    reason: str
    environment: dict[str, str]
    work: Work | None


def read_spawn(answer: Json) -> Spawn:
    """Read a `SpawnReply`; fields of a newer service are left out.

    Raises
    ------
    Unusable
        It does not have that shape.
    """
    with understood():
        lease: Any = answer["lease"]
        work: Any = answer["work"]
        state = STATES.get(lease["state"], "over")
        return Spawn(
            lease=int(lease["id"]),
            state=state,
            waiting=dict(lease.get("waiting") or {}),
            reason=str(lease.get("reason") or "The pool ended this request."),
            environment={str(name): str(value) for name, value in lease["environment"].items()},
            work=Work(**{field.name: work[field.name] for field in fields(Work)})
            if state == "held"
            else None,
        )


@contextmanager
def understood() -> Iterator[None]:
    """Turn an answer of another shape into one sentence."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unusable(
            "unexpected_reply",
            "The GPU pool's service gave an answer that this Hub does not understand.",
            hint="Tell your administrator: both need the same version of jupyter-gpupool.",
        ) from error
