"""Grants: what holds beside the policy, who asked for it, and who gave it.

Owns: the transactions of boosts, reservations, requests and drains. A grant, the answer to the request that
it follows and the note of who did it are one commit. Never: who may do it (see the service), a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from jupyter_gpupool.ledger.budgets import Budgets, charge_of
from jupyter_gpupool.ledger.database import Change, Database
from jupyter_gpupool.ledger.errors import IllegalTransition, UnknownId
from jupyter_gpupool.ledger.grant_records import (
    ActionRecord,
    BoostRecord,
    DrainRecord,
    NewBoost,
    NewRequest,
    NewReservation,
    OverRecord,
    RequestRecord,
    RequestState,
    ReservationRecord,
)
from jupyter_gpupool.ledger.granted import GrantChange, charged_since, newest_actions
from jupyter_gpupool.ledger.records import LeaseRecord
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.model import Budget

Grant = TypeVar("Grant", BoostRecord, ReservationRecord)


@dataclass(frozen=True)
class Answer:
    """The sentence with which somebody decides a request."""

    request: int
    text: str


class Grants:
    """Boosts, reservations, requests, drains and budgets.

    Parameters
    ----------
    save
        Commits a change, with what follows from it.
    live
        Returns the leases that are not free.

    Attributes
    ----------
    boosts, reservations, requests : mapping
        By number; boosts and reservations share one sequence. Those that are over stay until `Ledger.prune`.
    drains : mapping
        By the name of the node.
    over : mapping
        The groups that use more than they are owed, by name.
    """

    def __init__(
        self,
        database: Database,
        save: Callable[[Change, int], None],
        live: Callable[[], Iterable[LeaseRecord]],
    ) -> None:
        contents = database.contents.grants
        self._database = database
        self._numbers = database.contents.next
        self._save = save
        self._live = live
        self._budgets = Budgets(self._charged_since)
        self.boosts: Mapping[int, BoostRecord] = contents.boosts
        self.reservations: Mapping[int, ReservationRecord] = contents.reservations
        self.requests: Mapping[int, RequestRecord] = contents.requests
        self.drains: Mapping[str, DrainRecord] = contents.drains
        self.over: Mapping[str, OverRecord] = contents.over

    def budgets(self, policy: Policy, now: int) -> Mapping[str, Budget]:
        """Return the budget of each group that the policy gives one, with what is spent of it until `now`."""
        return self._budgets.of(policy, now, self._live(), self.boosts.values())

    def actions(self, limit: int) -> list[ActionRecord]:
        """Return who did what, newest first."""
        with self._database.transaction() as connection:
            return newest_actions(connection, limit)

    def outdated(self, before: int) -> GrantChange:
        """Return the change that drops what was over, or decided, before a moment."""
        return GrantChange(
            boosts={one.id: None for one in self.boosts.values() if one.over < before},
            reservations={one.id: None for one in self.reservations.values() if one.over < before},
            requests={
                one.id: None
                for one in self.requests.values()
                if one.decided is not None and one.decided < before
            },
        )

    # Granting

    def boost(self, new: NewBoost, did: ActionRecord, answer: Answer | None = None) -> BoostRecord:
        """Grant extra quota or budget, as the answer to a request if there is one."""
        record = BoostRecord(id=self._numbers["grant"], by=did.by, at=did.at, **vars(new))
        self._commit(self._answered(answer, did, record.id, boosts={record.id: record}), did)
        return record

    def reserve(
        self, new: NewReservation, did: ActionRecord, answer: Answer | None = None
    ) -> ReservationRecord:
        """Set cards apart, as the answer to a request if there is one."""
        record = ReservationRecord(id=self._numbers["grant"], by=did.by, at=did.at, **vars(new))
        self._commit(self._answered(answer, did, record.id, reservations={record.id: record}), did)
        return record

    def extend(self, longer: Change, did: ActionRecord, answer: Answer) -> None:
        """Give work more time, as the answer to a request; `longer` is the change of its records."""
        longer.grants = self._answered(answer, did, None)
        longer.grants.actions.append(did)
        self._save(longer, did.at)

    def end_boost(self, id: int, did: ActionRecord) -> BoostRecord:
        """End a boost before its time."""
        ended = replace(_lasting(f"boost {id}", self.boosts.get(id), did.at), ended=did.at)
        self._commit(GrantChange(boosts={id: ended}), did)
        return ended

    def end_reservation(self, id: int, did: ActionRecord) -> ReservationRecord:
        """End a reservation or maintenance before its time."""
        ended = replace(_lasting(f"reservation {id}", self.reservations.get(id), did.at), ended=did.at)
        self._commit(GrantChange(reservations={id: ended}), did)
        return ended

    # Asking

    def ask(self, new: NewRequest, did: ActionRecord) -> RequestRecord:
        """Put a request before those who may grant it."""
        record = RequestRecord(id=self._numbers["request"], at=did.at, **vars(new))
        self._commit(GrantChange(requests={record.id: record}), did)
        return record

    def refuse(self, answer: Answer, did: ActionRecord) -> RequestRecord:
        """Deny a request."""
        denied = self._decided(answer, RequestState.DENIED, did)
        self._commit(GrantChange(requests={denied.id: denied}), did)
        return denied

    def withdraw(self, id: int, did: ActionRecord) -> RequestRecord:
        """Take a request back."""
        withdrawn = self._decided(Answer(id, ""), RequestState.WITHDRAWN, did)
        self._commit(GrantChange(requests={id: withdrawn}), did)
        return withdrawn

    # Nodes, and the rest

    def drain(self, node: str, because: str, did: ActionRecord) -> DrainRecord:
        """Let a node take no new work."""
        record = DrainRecord(node, because, did.by, did.at)
        self._commit(GrantChange(drains={node: record}), did)
        return record

    def undrain(self, node: str, did: ActionRecord) -> None:
        """Let a node take work again."""
        self._commit(GrantChange(drains={node: None}), did)

    def record(self, did: ActionRecord) -> None:
        """Keep who did what."""
        self._commit(GrantChange(), did)

    def set_over(self, groups: Collection[str], now: int) -> None:
        """Keep since when groups use more than they are owed; nothing is written if nothing changed."""
        change = GrantChange(over={group: None for group in self.over if group not in groups})
        change.over |= {group: OverRecord(group, now) for group in groups if group not in self.over}
        if change.over:
            self._save(Change(grants=change), now)

    # What follows from the changes of leases

    def charge(self, change: Change, before: Mapping[int, LeaseRecord | None]) -> None:
        """Add to a change what the leases cost that become free by it."""
        freed = (
            charge_of(lease)
            for id, lease in change.leases.items()
            if not lease.live and (known := before[id]) is not None and known.live
        )
        change.grants.charges += [cost for cost in freed if cost is not None]

    def follow(self, change: Change) -> None:
        """Follow a change that was committed."""
        for cost in change.grants.charges:
            self._budgets.follow(cost)

    # Inside

    def _charged_since(self, since: int) -> dict[str, int]:
        with self._database.transaction() as connection:
            return charged_since(connection, since)

    def _answered(
        self, answer: Answer | None, did: ActionRecord, grant: int | None, **granted: dict[int, object]
    ) -> GrantChange:
        change = GrantChange(**granted)  # type: ignore[arg-type]
        if answer is not None:
            approved = replace(self._decided(answer, RequestState.APPROVED, did), grant=grant)
            change.requests[answer.request] = approved
        return change

    def _decided(self, answer: Answer, state: RequestState, did: ActionRecord) -> RequestRecord:
        record = self.requests.get(answer.request)
        if record is None:
            raise UnknownId(f"There is no request {answer.request}.")
        if record.state is not RequestState.OPEN:
            raise IllegalTransition(f"Request {record.id} is {record.state.value} already.")
        return replace(record, state=state, by=did.by, answer=answer.text, decided=did.at)

    def _commit(self, change: GrantChange, did: ActionRecord) -> None:
        change.actions.append(did)
        self._save(Change(grants=change), did.at)


def _lasting(what: str, record: Grant | None, now: int) -> Grant:
    if record is None:
        raise UnknownId(f"There is no {what}.")
    if not record.lasts(now):
        raise IllegalTransition(f"The {what} is over already.")
    return record
