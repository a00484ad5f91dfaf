"""What clients send about grants: the request bodies, checked strictly.

Owns: the pydantic models of boosts, reservations, requests and answers. Never: the meaning of a value;
amounts and times stay as they were typed until they are judged.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from jupyter_gpupool.service.wire import Body, Typed

Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^/\x00-\x1f]*$")]
"""A user's name."""
Sentence = Field(default="", max_length=1000)
Said = Field(min_length=1, max_length=1000)


class BoostRequest(Body):
    """Extra quota for a group, or for one user of it, until a moment; `out_of` names the group that gives it.

    `gpus_by_type` has the types' names as keys. `gpu_hours` go into the budget of the period in which it
    starts; without quota, it lasts as long as that period if no end is given.
    """

    group: str = Field(max_length=255)
    user: Name | None = None
    gpus: Typed = None
    gpus_by_type: dict[str, Typed] = Field(default_factory=dict)
    cpus: Typed = None
    mem: Typed = None
    gpu_hours: Typed = None
    start: str | None = None
    until: str | None = None
    out_of: str | None = Field(default=None, max_length=255)
    because: str = Sentence


class ReservationRequest(Body):
    """Cards for groups and users, or for nobody (`maintenance`), from one moment to another.

    Either `cards` (``node1:0-3``, or UUIDs), or `gpus` (how many) of a `node`, a `partition` and a type;
    neither: all cards of the `node`.
    """

    cards: list[str] = Field(default_factory=list)
    gpus: Typed = None
    node: str | None = None
    partition: str | None = None
    gpu_type: str | None = None
    groups: list[str] = Field(default_factory=list)
    users: list[Name] = Field(default_factory=list)
    maintenance: bool = False
    start: str | None = None
    until: str
    out_of: str | None = Field(default=None, max_length=255)
    because: str = Sentence


class TimeWish(Body):
    """More time for a job of one's own, or an own session: `time` is how much more."""

    work: int = Field(ge=1)
    time: Typed


class NewGrantRequest(Body):
    """What a user asks for, and why."""

    kind: Literal["boost", "reservation", "time", "budget"]
    group: str | None = Field(default=None, max_length=255)
    wants: dict[str, Any] = Field(description="A boost, a reservation, or more time, by the kind.")
    because: str = Said


class AnswerRequest(Body):
    """The sentence with which a request is approved or denied; `out_of` names the group that gives."""

    answer: str = Said
    out_of: str | None = Field(default=None, max_length=255)


class DrainRequest(Body):
    """Why a node takes no new work."""

    because: str = Sentence


WISHES: dict[str, type[Body]] = {
    "boost": BoostRequest,
    "budget": BoostRequest,
    "reservation": ReservationRequest,
    "time": TimeWish,
}
