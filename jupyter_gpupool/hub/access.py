"""Who may do what, in the Hub's words.

Owns: the roles that hold the pool's scopes, and how they join roles that a site already has.
Never: what a scope allows; the service decides that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jupyterhub.roles import get_default_roles

from jupyter_gpupool.client.names import ACCESS, ADMIN, MANAGE, READ_ALL, SERVICE, SPAWN, SUBMIT

SPAWNER = "gpupool-spawner"

CUSTOM_SCOPES = {
    SUBMIT: {"description": "Submit jobs to the GPU pool, and control one's own"},
    MANAGE: {"description": "Control the jobs of groups that one manages in the GPU pool"},
    READ_ALL: {"description": "See everybody's jobs and use of the GPU pool"},
    ADMIN: {"description": "Administer the GPU pool"},
    SPAWN: {"description": "Lease from the GPU pool for the servers of all users"},
}
USER_SCOPES = (ACCESS, SUBMIT, MANAGE)
"""What users and their servers hold; MANAGE says something only for those whom the policy names."""
CLIENT_SCOPES = (SUBMIT, MANAGE, READ_ALL, ADMIN)
"""The most that a browser's token for the pool may hold; each holds what its user has of it."""
SERVICE_SCOPES = ("list:users", "read:users:groups", "read:servers")

Role = dict[str, Any]


def pool_roles(admins: Iterable[str], admin_groups: Iterable[str]) -> list[Role]:
    """Return the pool's own roles."""
    return [
        {
            "name": "gpupool-service",
            "description": "The GPU pool's service: who is there, in which groups, with which servers",
            "scopes": list(SERVICE_SCOPES),
            "services": [SERVICE],
        },
        {
            "name": SPAWNER,
            "description": "The Hub itself, when it starts servers",
            "scopes": [ACCESS, SPAWN],
            "services": [SPAWNER],
        },
        {
            "name": "gpupool-admin",
            "description": "Administrators of the GPU pool",
            "scopes": [*USER_SCOPES, READ_ALL, ADMIN],
            "users": list(admins),
            "groups": list(admin_groups),
        },
    ]


def with_scopes(roles: list[Role], name: str, scopes: Iterable[str]) -> list[Role]:
    """Return `roles` in which role `name`, the site's or else the Hub's own, also holds `scopes`."""
    default: list[str] = next((role["scopes"] for role in get_default_roles() if role["name"] == name), [])
    named = [role for role in roles if role.get("name") == name] or [{"name": name}]
    role = {**named[0], "scopes": union(named[0].get("scopes", default), scopes)}
    return [found for found in roles if found.get("name") != name] + [role]


def with_role(roles: list[Role], wanted: Role) -> list[Role]:
    """Return `roles` and `wanted`, joined with the site's role of the same name if there is one."""
    joined = dict(wanted)
    for role in roles:
        if role.get("name") == wanted["name"]:
            joined.update(role)
            for members in ("scopes", "users", "groups", "services"):
                joined[members] = union(role.get(members, ()), wanted.get(members, ()))
    return [role for role in roles if role.get("name") != wanted["name"]] + [joined]


def redefines_users(roles: list[Role]) -> bool:
    """Whether the site says itself what users may do: then the Hub adds no scopes to it."""
    return any(role.get("name") == "user" and "scopes" in role for role in roles)


def union(first: Iterable[str], second: Iterable[str]) -> list[str]:
    """Return both without repetition, in order."""
    return list(dict.fromkeys([*first, *second]))
