"""What people grant beside the policy, what users ask for, and who did what.

Owns: the records of boosts, reservations, requests, drains and actions. Never: who may grant (the service
says that), nor the database.

Times are whole seconds since the epoch (UTC), budgets milli-GPU seconds; amounts have the keys of a quota.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

RequestKind: TypeAlias = Literal["boost", "reservation", "time", "budget"]


class RequestState(StrEnum):
    """Where a user's request is in its life."""

    OPEN = "open"
    APPROVED = "approved"
    DENIED = "denied"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class NewBoost:
    """Extra quota (`amounts`) and extra `budget` for a group, or one user of it, over [start, end).

    What comes out of another group's quota or budget names that group as `giver`.
    """

    group: str
    start: int
    end: int
    amounts: Mapping[str, int] = field(default_factory=dict)
    budget: int = 0
    user: str | None = None
    giver: str | None = None
    because: str = ""


@dataclass(frozen=True)
class BoostRecord:
    """A boost: `by` whom it was granted, `at` what time, and when it was `ended` early, if it was."""

    id: int
    group: str
    user: str | None
    giver: str | None
    amounts: Mapping[str, int]
    budget: int
    start: int
    end: int
    because: str
    by: str
    at: int
    ended: int | None = None

    @property
    def over(self) -> int:
        """When it is over."""
        return self.end if self.ended is None else min(self.end, self.ended)

    def lasts(self, now: int) -> bool:
        """Whether it holds now, or will."""
        return self.ended is None and now < self.end


@dataclass(frozen=True)
class NewReservation:
    """Cards (UUIDs) set apart over [start, end) for groups and users; for nobody: maintenance.

    What comes out of a group's quota names that group as `giver`.
    """

    cards: tuple[str, ...]
    start: int
    end: int
    groups: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    giver: str | None = None
    because: str = ""


@dataclass(frozen=True)
class ReservationRecord:
    """A reservation or maintenance: `by` whom, `at` what time, and when it was `ended` early, if it was."""

    id: int
    cards: tuple[str, ...]
    groups: tuple[str, ...]
    users: tuple[str, ...]
    giver: str | None
    start: int
    end: int
    because: str
    by: str
    at: int
    ended: int | None = None

    @property
    def maintenance(self) -> bool:
        """Whether it serves nobody."""
        return not (self.groups or self.users)

    @property
    def over(self) -> int:
        """When it is over."""
        return self.end if self.ended is None else min(self.end, self.ended)

    def lasts(self, now: int) -> bool:
        """Whether it holds now, or will."""
        return self.ended is None and now < self.end


@dataclass(frozen=True)
class NewRequest:
    """What a user asks a manager or administrator for; `wants` is what was typed."""

    kind: RequestKind
    user: str
    group: str
    wants: Mapping[str, Any]
    because: str


@dataclass(frozen=True)
class RequestRecord:
    """A request, and its answer: `by` whom, `decided` when, in which sentence, to which `grant` it led."""

    id: int
    kind: RequestKind
    user: str
    group: str
    wants: Mapping[str, Any]
    because: str
    at: int
    state: RequestState = RequestState.OPEN
    by: str | None = None
    answer: str = ""
    decided: int | None = None
    grant: int | None = None


@dataclass(frozen=True)
class DrainRecord:
    """A node that takes no new work; what runs there goes on."""

    node: str
    because: str
    by: str
    at: int


@dataclass(frozen=True)
class OverRecord:
    """A group that has used more than it is owed, without a pause, `since` then."""

    group: str
    since: int


@dataclass(frozen=True)
class ActionRecord:
    """Who did what, when, in one sentence."""

    at: int
    by: str
    action: str
    text: str


@dataclass(frozen=True)
class ChargeRecord:
    """What one lease that is free has cost its group: `rate` in millionths of a GPU, price included."""

    lease: int
    group: str
    start: int
    end: int
    rate: int
