"""What an identity may do, in one word each, and what those words are called on a Hub.

Owns: `Scope`, what each kind of request needs, and reading a Hub token's scopes. Never: who is asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

Scope = Literal["read", "submit", "manage", "read_all", "admin", "spawn", "report"]
Action = Literal["read", "submit", "change", "administer", "spawn", "report"]

ADMINISTRATOR: frozenset[Scope] = frozenset(("read", "submit", "manage", "read_all", "admin"))
"""What an administrator may: all but what only the Hub's spawner and a job itself do."""

NEEDED: Mapping[Action, tuple[Scope, ...]] = {
    "read": ("read",),
    "submit": ("submit",),
    "change": ("submit", "manage"),
    "administer": ("admin",),
    "spawn": ("spawn",),
    "report": ("report",),
}
"""The scopes of which a request needs one."""

_PREFIX = "custom:gpupool:"


def hub_name(scope: Scope, service: str = "gpupool") -> str:
    """Return what a scope is called on the Hub."""
    return f"access:services!service={service}" if scope == "read" else _PREFIX + scope.replace("_", ":")


def scopes_of(granted: Iterable[str], service: str = "gpupool") -> frozenset[Scope]:
    """Return what the scopes of a Hub token permit here.

    Parameters
    ----------
    granted
        The token's scopes, expanded, as the Hub lists them.
    service
        What this service is called on the Hub.
    """
    names = set(granted)
    if "access:services" in names:
        names.add(hub_name("read", service))
    found: frozenset[Scope] = frozenset(
        scope for scope in get_args(Scope) if scope != "report" and hub_name(scope, service) in names
    )
    return found | ADMINISTRATOR if "admin" in found else found


def permits(scopes: frozenset[Scope], action: Action) -> bool:
    """Whether who has `scopes` may make this kind of request."""
    return not scopes.isdisjoint(NEEDED[action])
