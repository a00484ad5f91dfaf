"""The policy file as typed, frozen values: every key, its unit and its default.

Owns: the shape of the file. Never: its lines, rules between keys (see `checks`), or devices.
Sizes are MiB, durations seconds, GPUs and CPUs thousandths; the file writes them with units.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from jupyter_gpupool.policy import advice
from jupyter_gpupool.policy.amounts import resource_of
from jupyter_gpupool.policy.cards import CardInfo, CardPattern, parse_card_pattern
from jupyter_gpupool.policy.problems import SourceMap
from jupyter_gpupool.policy.units import (
    UnitError,
    format_duration,
    format_size,
    parse_count,
    parse_duration,
    parse_milli,
    parse_share,
    parse_size,
)
from jupyter_gpupool.policy.weekly import Weekly, parse_weekly

ROOT = "pool"
NORMAL = "normal"
OTHERWISE = "otherwise"


def _parsed(parse: Callable[..., object], **bounds: int) -> BeforeValidator:
    """Return a validator that parses text and names the key in its errors."""

    def validate(value: Any, info: ValidationInfo) -> object:
        return parse(value, what=info.field_name, **bounds)

    return BeforeValidator(validate)


def _plain_number(milli: int) -> int | float:
    return milli / 1000 if milli % 1000 else milli // 1000


def _share_text(share: tuple[int, int]) -> str:
    return f"{share[0]}/{share[1]}"


def _text_of(rule: CardPattern | Weekly) -> str:
    return rule.text


Mib = Annotated[int, _parsed(parse_size), PlainSerializer(format_size)]
Time = Annotated[int, _parsed(parse_duration), PlainSerializer(format_duration)]
TimeOrZero = Annotated[int, _parsed(parse_duration, zero=True), PlainSerializer(format_duration)]
Count = Annotated[int, _parsed(parse_count)]
Positive = Annotated[int, _parsed(parse_count, minimum=1)]
Milli = Annotated[int, _parsed(parse_milli), PlainSerializer(_plain_number)]
MilliPositive = Annotated[int, _parsed(parse_milli, minimum=1), PlainSerializer(_plain_number)]
Share = Annotated[tuple[int, int], _parsed(parse_share), PlainSerializer(_share_text)]
Rule = Annotated[Weekly, BeforeValidator(parse_weekly), PlainSerializer(_text_of)]
Cards = Annotated[CardPattern, BeforeValidator(parse_card_pattern), PlainSerializer(_text_of)]
Name = Annotated[str, Field(min_length=1, max_length=255)]
Kind = Literal["session", "job"]
IdleAction = Literal["warn", "park", "release", "stop"]
Occasion = Literal["end", "fail", "start", "stop"]
"""What people want to hear of a job: any end, a bad one, a start, a stop for others."""


class Section(BaseModel):
    """A part of the file: nothing in it changes, and a key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Calendar(Section):
    """When something holds, in local time; a holiday counts as Sunday, a make-up day as Monday."""

    weekly: Annotated[tuple[Rule, ...], Field(min_length=1)]
    holidays: str | None = None


class Slice(Section):
    """What one session may get: a share of a card, whole cards, or none; with CPUs and host memory."""

    share: Share | None = None
    gpus: Count | None = None
    cpus: MilliPositive | None = None
    memory: Mib | None = None

    @model_validator(mode="after")
    def _one_size(self) -> Slice:
        if (self.share is None) == (self.gpus is None):
            raise UnitError("a slice has either share or gpus.", "Write {share: 1/8} or {gpus: 1}.")
        return self


class PartitionLend(Section):
    """To whom a partition's idle cards go, and when."""

    to: Name
    during: Name
    by_day: bool = False
    headroom: Count = 0
    settle: TimeOrZero = 3600


class Partition(Section):
    """A named set of GPUs with a purpose."""

    gpus: Annotated[tuple[Cards, ...], Field(min_length=1)]
    kinds: Annotated[tuple[Kind, ...], Field(alias="for", min_length=1)]
    slices: tuple[Slice, ...] = ()
    cpu_overcommit: MilliPositive = 1000
    lend: PartitionLend | None = None

    def holds(self, card: CardInfo) -> bool:
        """Whether this partition names the card."""
        return any(pattern.matches(card) for pattern in self.gpus)


class Defaults(Section):
    """What goes with one whole card unless a slice says otherwise."""

    cpus_per_gpu: MilliPositive = 6000
    memory_per_gpu: Mib = 60 * 1024


class Amounts(Section):
    """GPUs (thousandths, also by type as ``gpus.h200``), CPUs (thousandths) and memory (MiB)."""

    TYPED: ClassVar[str] = "gpus."

    gpus: Milli | None = None
    cpus: Milli | None = None
    memory: Mib | None = None
    gpus_by_type: dict[str, Milli] = Field(default_factory=dict, alias="gpus.*")

    @model_validator(mode="before")
    @classmethod
    def _gather_typed(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        typed = {k: v for k, v in data.items() if str(k).startswith(cls.TYPED) and k != cls.TYPED}
        rest = {k: v for k, v in data.items() if k not in typed}
        return rest | ({"gpus.*": typed} if typed else {})

    @model_serializer(mode="wrap")
    def _spread_typed(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return data | (data.pop("gpus.*", None) or {})

    def amounts(self) -> dict[str, int]:
        """Return what is named, as ``gpu_milli``, ``gpu_milli.<type>``, ``cpus_milli``, ``memory_mib``."""
        named = {"gpus": self.gpus, "cpus": self.cpus, "memory": self.memory} | self.gpus_by_type
        return {resource_of(key): amount for key, amount in named.items() if amount is not None}


class Budget(Section):
    """GPU hours that a group may use in a period."""

    gpu_hours: Positive
    period: Literal["week", "month", "quarter", "year"] = "month"


class UserLimits(Section):
    """What one user may hold at once; absent = no limit of this kind."""

    gpus: Milli | None = None
    sessions: Count | None = None
    session_time: Time | None = None
    running_jobs: Count | None = None
    queued_jobs: Count | None = None
    job_time: Time | None = None


class User(UserLimits):
    """One user's own numbers, in place of the group's `user`; and of which `notify` occasions to write."""

    default_group: Name | None = None
    notify: tuple[Occasion, ...] | None = None


class Group(Section):
    """A group: what it is owed, what it may reach, what it lends, who is in it."""

    parent: Name = ROOT
    quota: Amounts = Amounts()
    limit: Amounts | None = None
    lend: Amounts | None = None
    weight: Positive = 1
    managers: tuple[Name, ...] = ()
    members: tuple[Name, ...] = ()
    budget: Budget | None = None
    user: UserLimits = UserLimits()


class Priority(Section):
    """A priority: its value, its price in use, and who may take it, how often."""

    value: Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
    charge: MilliPositive = 1000
    groups: tuple[Name, ...] | None = None
    running_jobs: Count | None = None
    preempts: bool = False


def _by_calendar(value: object) -> object:
    return {OTHERWISE: value} if isinstance(value, str) else value


class Sessions(Section):
    """What happens to sessions that do nothing, by calendar and ``otherwise``."""

    idle_after: Time = 3600
    idle_action: Annotated[dict[Name, IdleAction], BeforeValidator(_by_calendar)] = {OTHERWISE: "warn"}


class Jobs(Section):
    """Times and counts that hold for all jobs."""

    default_time: Time = 8 * 3600
    grace: TimeOrZero = 120
    max_grace: TimeOrZero = 300
    min_run_time: TimeOrZero = 600
    borrow_max_time: TimeOrZero = 4 * 3600
    promises: Count = 100


class Storage(Section):
    """How long ended work is kept, and how much disk stays free."""

    retention: Time = 30 * 86400
    min_free: Mib = 10 * 1024


def _url(*schemes: str) -> BeforeValidator:
    def validate(value: object) -> object:
        parts = urlsplit(str(value))
        if parts.scheme not in schemes or not parts.hostname or parts.port == 0:
            raise UnitError(f'"{value}" is not an address.', f"Write {schemes[0]}://host/…")
        return value

    return BeforeValidator(validate)


def _address(value: object) -> object:
    name, _, host = str(value).replace(USER, "user").rpartition("@")
    if not (_ADDRESS.fullmatch(name) and _ADDRESS.fullmatch(host)):
        raise UnitError(f'"{value}" is not a mail address.', "Write it as name@example.org.")
    return value


USER = "{user}"
_ADDRESS = re.compile(r"(?:(?![@<>,;:{}()\[\]\"\\])[!-~])+")
Address = Annotated[str, BeforeValidator(_address)]


class Notify(Section):
    """Where messages go, and about which occasions to whom.

    `to` makes a user's address of the name; `addresses` are those of single users. `admins` hear of what
    troubles the pool. `events`: the occasions for jobs of users who have not said otherwise.
    """

    smtp: Annotated[str, _url("smtps", "smtp")] | None = None
    webhook: Annotated[str, _url("https", "http")] | None = None
    sender: Annotated[Address | None, Field(alias="from")] = None
    to: Address | None = None
    addresses: dict[Name, Address] = {}
    admins: tuple[Address, ...] = ()
    events: tuple[Occasion, ...] = ()

    def reaches(self, user: str) -> bool:
        """Whether a message to a user has a way to go."""
        return self.webhook is not None or (self.smtp is not None and self.address(user) is not None)

    def address(self, user: str) -> str | None:
        """Return a user's mail address, if it is known; a name that is one is its own."""
        found = self.addresses.get(user) or (self.to.replace(USER, user) if self.to else user)
        try:
            return str(_address(found))
        except UnitError:
            return None


_PRIORITIES = {
    "low": Priority.model_validate({"value": -100, "charge": "0.5"}),
    NORMAL: Priority(value=0),
    "high": Priority.model_validate({"value": 100, "charge": 2, "running_jobs": 1}),
}


def _with_normal(priorities: dict[str, Priority]) -> dict[str, Priority]:
    """Return the priorities with the one of a job that names none."""
    return priorities | {NORMAL: priorities.get(NORMAL, _PRIORITIES[NORMAL])}


class Policy(Section):
    """The whole file."""

    timezone: Name = "UTC"
    calendars: dict[Name, Calendar] = {}
    partitions: Annotated[dict[Name, Partition], Field(min_length=1)]
    defaults: Defaults = Defaults()
    groups: Annotated[dict[Name, Group], Field(min_length=1)]
    users: dict[Name, User] = {}
    default_group: Name | None = None
    priorities: Annotated[dict[Name, Priority], AfterValidator(_with_normal)] = _PRIORITIES
    sessions: Sessions = Sessions()
    jobs: Jobs = Jobs()
    run_as: Literal["user", "service"] = "user"
    visibility: Literal["names", "groups"] = "names"
    enforce: Literal["observe", "warn", "stop"] = "warn"
    storage: Storage = Storage()
    notify: Notify = Notify()

    _source: SourceMap = PrivateAttr(default_factory=SourceMap)

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which calendars are read."""
        return ZoneInfo(self.timezone)

    def read_from(self, source: SourceMap) -> Policy:
        """Return this policy with the lines of the file it was read from."""
        self._source = source
        return self

    @property
    def source(self) -> SourceMap:
        """Where each key stands in the file this was loaded from."""
        return self._source

    def partition_of(self, card: CardInfo) -> str | None:
        """Return the name of the partition that has the card."""
        return next((name for name, part in self.partitions.items() if part.holds(card)), None)

    def above(self, group: str) -> list[str]:
        """Return the groups above one, the nearest first."""
        found: list[str] = []
        while group in self.groups and (group := self.groups[group].parent) in self.groups:
            found.append(group)
        return found

    def inactive(self) -> list[str]:
        """Return one sentence per key of the file that is accepted but not active in this version."""
        return advice.inactive(self)
