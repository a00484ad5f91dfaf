"""The shapes of what is told of the past: who used how much, and who held what.

Owns: the typed dictionaries of the report and of the history; see `replies`. Hours and parts of 1 are
decimals; null = not known. Never: a value.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


class UsedReply(TypedDict):
    """What was used, and what came of it.

    `charged_gpu_hours` count the price of each priority. `utilisation` is how busy the devices were in the
    `measured_gpu_hours`; null = nothing measures these cards. Waits are those of jobs, from submission to the
    first start; `stops` are runs that were asked to leave for others.
    """

    gpu_hours: float
    charged_gpu_hours: float
    measured_gpu_hours: float
    utilisation: float | None
    submitted: int
    ended: dict[str, int]
    wait_mean_s: int | None
    wait_p95_s: int | None
    session_wait_p95_s: int | None
    stops: int
    sessions: int
    idle_sessions: int
    idle_hours: float


class UseReply(UsedReply):
    """One user of a group; `user` null = all those together whose own numbers are not for who asks."""

    group: str
    user: str | None


class BudgetUseReply(TypedDict):
    """A group's budget in its present period, which ends at `until`; `left` is never below 0."""

    gpu_hours: float
    spent_gpu_hours: float
    left_gpu_hours: float
    until: str | None


class GroupUseReply(UsedReply):
    """One group with what is below it; `quota_gpu_hours`: what it was owed in that time by today's policy."""

    group: str
    quota_gpu_hours: float | None
    budget: BudgetUseReply | None


class CardsReply(TypedDict):
    """Hours in which anybody held any of a card, and in which its memory was held, for a card and day."""

    touched_hours_per_card_day: float | None
    held_hours_per_card_day: float | None
    utilisation: float | None


class DayReply(UsedReply, CardsReply):
    """One local day."""

    date: str


class CardUseReply(CardsReply):
    """One card."""

    uuid: str
    node: str | None
    index: int | None


class TotalReply(UsedReply, CardsReply):
    """The whole period."""


class ReportReply(TypedDict):
    """What was used in a period, as far as it is over; of the whole pool, or of one group or user.

    `gpu_hours` and `capacity_gpu_hours` are the pool's.
    """

    since: str | None
    until: str | None
    group: str | None
    user: str | None
    days: list[DayReply]
    use: list[UseReply]
    groups: list[GroupUseReply]
    cards: list[CardUseReply]
    total: TotalReply
    gpu_hours: float
    capacity_gpu_hours: float
    simulated: bool


class HolderReply(TypedDict):
    """Who held part of the pool at a moment, and why; `until` null = it is held still."""

    kind: Literal["job", "session"]
    id: int
    name: str | None
    user: str | None
    group: str
    priority: str
    attempt: int
    since: str | None
    until: str | None
    ended_because: str | None


class HeldCardReply(TypedDict):
    """One card at a moment."""

    uuid: str
    node: str | None
    index: int | None
    partition: str | None
    holders: list[HeldShareReply]


class HeldShareReply(HolderReply):
    """A holder's part of a card."""

    mib: int
    gpu_milli: int


class PolicyThenReply(TypedDict):
    """The policy that was in force: its file in the history, and since when."""

    name: str
    since: str | None


class HistoryReply(TypedDict):
    """Who held what at a moment, under which policy; `known_since` is how far back everything is known."""

    at: str | None
    policy: PolicyThenReply | None
    cards: list[HeldCardReply]
    without_card: list[HolderReply]
    known_since: str | None
