"""What the service answers about grants: the shape of every reply.

Owns: the typed dictionaries of boosts, reservations, requests, drains and actions. Times are ISO 8601 in UTC,
parts of GPUs and CPUs thousandths, sizes MiB. Never: a value.
"""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

Phase = Literal["coming", "now", "over"]


class BoostReply(TypedDict):
    """Extra quota or budget; of others, who it is for and why is null where names are not shown."""

    id: int
    group: str
    user: str | None
    out_of: str | None
    amounts: dict[str, int]
    gpu_hours: float
    start: str | None
    until: str | None
    because: str | None
    by: str | None
    phase: Phase
    notes: list[str]


class BoostsReply(TypedDict):
    """Boosts that hold or will."""

    boosts: list[BoostReply]


class ReservedCardReply(TypedDict):
    """A card that is set apart."""

    uuid: str
    node: str | None
    index: int | None


class MetReply(TypedDict):
    """Work of others that is expected to run past the moment from which its cards are wanted."""

    id: int
    kind: str
    user: str | None
    group: str
    until: str | None


class ReservationReply(TypedDict):
    """Cards set apart; what is `met` there runs on, and leaves by `until` at the latest."""

    id: int
    cards: list[ReservedCardReply]
    groups: list[str]
    users: list[str] | None
    maintenance: bool
    out_of: str | None
    start: str | None
    until: str | None
    because: str | None
    by: str | None
    phase: Phase
    met: list[MetReply]


class ReservationsReply(TypedDict):
    """Reservations and maintenance that hold or will."""

    reservations: list[ReservationReply]


class GrantRequestReply(TypedDict):
    """What somebody asked for, and its answer; `grant` is the number of what it led to."""

    id: int
    kind: str
    user: str
    group: str
    text: str
    wants: dict[str, Any]
    because: str
    at: str | None
    state: str
    by: str | None
    answer: str | None
    decided: str | None
    grant: int | None


class GrantRequestsReply(TypedDict):
    """One's own requests and those one may decide, newest first."""

    requests: list[GrantRequestReply]


class DrainReply(TypedDict):
    """Whether a node takes new work, and what still runs there, the longest first."""

    node: str
    drained: bool
    because: str
    running: list[MetReply]


class ActionReply(TypedDict):
    """Who did what."""

    at: str | None
    by: str
    action: str
    text: str


class ActionsReply(TypedDict):
    """Who did what, newest first."""

    actions: list[ActionReply]
