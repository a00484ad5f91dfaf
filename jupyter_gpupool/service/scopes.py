"""What an identity may do, in one word each, and what those words are called on a Hub.

Owns: `Scope`, what each kind of request needs, and reading a Hub token's scopes. Never: who is asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from jupyter_gpupool.client import names

Scope = Literal["read", "submit", "manage", "read_all", "admin", "spawn", "report"]
Action = Literal["read", "submit", "change", "grant", "administer", "spawn", "report"]

ADMINISTRATOR: frozenset[Scope] = frozenset(("read", "submit", "manage", "read_all", "admin"))
"""What an administrator may: all but what only the Hub's spawner and a job itself do."""

NEEDED: Mapping[Action, tuple[Scope, ...]] = {
    "read": ("read",),
    "submit": ("submit",),
    "change": ("submit", "manage"),
    "grant": ("manage",),
    "administer": ("admin",),
    "spawn": ("spawn",),
    "report": ("report",),
}
"""The scopes of which a request needs one."""

ON_HUB: Mapping[Scope, str] = {
    "read": names.ACCESS,
    "submit": names.SUBMIT,
    "manage": names.MANAGE,
    "read_all": names.READ_ALL,
    "admin": names.ADMIN,
    "spawn": names.SPAWN,
}
"""What the scopes are called on a Hub; it has none for the reports of jobs."""
JOBS_TOKEN = "the token of that job"


def what_it_takes(action: Action) -> str:
    """Say which of the Hub's scopes, or what else, this kind of request takes."""
    known = [ON_HUB[scope] for scope in NEEDED[action] if scope in ON_HUB]
    return f"the scope {' or '.join(known)}" if known else JOBS_TOKEN


def scopes_of(granted: Iterable[str]) -> frozenset[Scope]:
    """Return what the scopes of a Hub token permit here; they are expanded, as the Hub lists them."""
    there = set(granted)
    if "access:services" in there:
        there.add(names.ACCESS)
    found: frozenset[Scope] = frozenset(scope for scope, name in ON_HUB.items() if name in there)
    return found | ADMINISTRATOR if "admin" in found else found


def permits(scopes: frozenset[Scope], action: Action) -> bool:
    """Whether who has `scopes` may make this kind of request."""
    return not scopes.isdisjoint(NEEDED[action])
