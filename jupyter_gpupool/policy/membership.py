"""Whose work counts for which group.

Owns: the group of a user and of a request. Never: the Hub; its groups come in.
"""

from __future__ import annotations

from collections.abc import Collection

from jupyter_gpupool.policy.model import Policy


class NotAMember(ValueError):  # noqa: N818 (reads as the sentence it carries)
    """A group was asked for that the user is not in."""


def groups_of(policy: Policy, user: str, hub_groups: Collection[str] | None = None) -> list[str]:
    """Return the groups of `user`, in policy order.

    Parameters
    ----------
    hub_groups : collection of str, optional
        What a Hub says; it then decides alone. Without a Hub, `members` and the user's own
        `default_group` say it. A user of no policy group is in the policy's `default_group`, if any.
    """
    if hub_groups is None:
        own = policy.users[user].default_group if user in policy.users else None
        found = [name for name, group in policy.groups.items() if user in group.members or name == own]
    else:
        found = [name for name in policy.groups if name in hub_groups]
    if not found and policy.default_group is not None:
        return [policy.default_group]
    return found


def choose_group(
    policy: Policy, user: str, asked: str | None = None, hub_groups: Collection[str] | None = None
) -> str | None:
    """Return the group a request counts for; None = no group, hence CPU only.

    The group asked for, else the user's default, else the first in policy order.

    Raises
    ------
    NotAMember
        `asked` is not one of the user's groups.
    """
    groups = groups_of(policy, user, hub_groups)
    if asked is not None:
        if asked not in groups:
            known = f"Your groups: {', '.join(groups)}." if groups else "You are in no group of the policy."
            raise NotAMember(f'You are not in the group "{asked}". {known}')
        return asked
    own = policy.users[user].default_group if user in policy.users else None
    return own if own in groups else next(iter(groups), None)
