"""One request, as handlers see it.

Owns: `Call`, with the one way to reach a job or lease: through the rule of who may. Never: HTTP parsing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from jupyter_gpupool.ledger.records import Job, SessionRecord
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.errors import forbidden, invalid, not_found
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.naming import LIST, Named, Unborn, label, named, no_single_job
from jupyter_gpupool.service.visibility import manages, sees_names

Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Bytes:
    """A reply as it goes out."""

    data: bytes
    content_type: str = "application/octet-stream"
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(reply: Any) -> Bytes:
    """Return a JSON reply."""
    return Bytes(json.dumps(reply, separators=(",", ":")).encode(), "application/json")


@dataclass(frozen=True, slots=True)
class Call(Generic[Body]):
    """A request that was identified, authorised and read.

    `path` holds the named parts of the address, `query` its checked parameters, `body` the model.
    """

    service: Service
    who: Identity
    path: Mapping[str, str]
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    body: Body

    def named(self) -> Named:
        """Return the job, array or task that the address names, anybody's."""
        return named(self.service.ledger, self.path["id"])

    def private_job(self) -> Job:
        """Return the user's own job; others' are as if they did not exist."""
        found = self.named()
        if self._like(found).owner != self.who.user:
            raise not_found(f"job {self.path['id']} of yours", LIST)
        if not isinstance(found, Job):
            raise no_single_job(found)
        return found

    def changeable(self) -> Named:
        """Return what the user may change: an own job, one of a group managed, as administrator any."""
        found, who, policy = self.named(), self.who, self.service.policy
        job = self._like(found)
        if job.owner != who.user and not who.admin and not manages(policy, who, job.group):
            owner = job.owner if sees_names(policy, who) else f"somebody in {job.group}"
            raise forbidden(f"Job {label(found)} belongs to {owner}.")
        return found

    def _like(self, found: Named) -> Job:
        """Return the job, or the first one of an array: they have one owner, and one group."""
        if isinstance(found, Job):
            return found
        array = found.array if isinstance(found, Unborn) else found
        return self.service.ledger.jobs[array.first]

    @property
    def id(self) -> int:
        """The number in the address."""
        return _number(self.path["id"])

    def session(self) -> SessionRecord:
        """Return the user's own session, or any for an administrator."""
        found = self.service.ledger.sessions.get(_number(self.path["id"]))
        if found is None or (found.owner != self.who.user and not self.who.admin):
            raise not_found(f"lease {self.path['id']} of yours")
        return found

    def any_session(self) -> SessionRecord:
        """Return the session that the address names, anybody's."""
        found = self.service.ledger.sessions.get(_number(self.path["id"]))
        if found is None:
            raise not_found(f"lease {self.path['id']}")
        return found


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise invalid(f"{text!r} is no number.")
    return int(text)
