"""What an administrator should know about a policy that is valid.

Owns: the sentences on keys that are not active yet, and warnings such as "oversubscribed".
Never: errors (see `checks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from jupyter_gpupool.policy.amounts import amount_text
from jupyter_gpupool.policy.cards import CardInfo
from jupyter_gpupool.policy.problems import Path, dotted

if TYPE_CHECKING:
    from jupyter_gpupool.policy.model import Policy

_PARTLY = {
    "storage/min_free": "not active for jobs; with less free only administrators are told",
    "enforce": "not active for memory; use above a slice is only observed",
}
_AS_IT_IS = {"enforce": "observe"}
_NAMED = 3


def inactive(policy: Policy) -> list[str]:
    """Return one sentence per kind of key in the file that is accepted but not active in this version."""
    written = policy.model_dump(exclude_unset=True, by_alias=True)
    paths = [path for path, value in _walk(written) if value and _AS_IT_IS.get(dotted(path)) != value]
    sentences = []
    for pattern, sentence in _PARTLY.items():
        keys = [dotted(p) for p in paths if _matches(p, pattern)]
        if keys:
            sentences.append(f"{_listed(keys)}: {sentence}.")
    if "park" in policy.sessions.idle_action.values():
        sentences.append(
            "sessions.idle_action: park is not active in this version; idle sessions are warned."
        )
    no_slices = [
        dotted(("partitions", name, "slices"))
        for name, part in policy.partitions.items()
        if part.slices and "session" not in part.kinds
    ]
    if no_slices:
        sentences.append(f"{_listed(no_slices)}: not active for jobs; a job names its size.")
    return sentences


def warnings(policy: Policy, totals: Mapping[str, int], gpus: Sequence[CardInfo] = ()) -> list[str]:
    """Return sentences on a policy that does not suit the pool.

    Parameters
    ----------
    totals : mapping
        What the pool has, with the keys of `Amounts.amounts`; CPUs are not compared, for
        a partition may overcommit them.
    gpus : sequence of CardInfo, optional
        The cards, to find those that no partition names and patterns that name none.
    """
    return [*_oversubscribed(policy, totals), *_cards(policy, gpus), *_nobodys(policy), *_unheard(policy)]


def _oversubscribed(policy: Policy, totals: Mapping[str, int]) -> Iterator[str]:
    owed: Counter[str] = Counter()
    for group in policy.groups.values():
        owed.update(group.quota.amounts())
    for resource, amount in sorted(owed.items()):
        if resource != "cpus_milli" and amount > totals.get(resource, 0):
            has = amount_text(resource, totals.get(resource, 0))
            yield (
                f"oversubscribed: the groups are owed {amount_text(resource, amount)}, the pool has {has}; "
                "work inside quota may have to wait. Lower a quota."
            )


def _cards(policy: Policy, gpus: Sequence[CardInfo]) -> Iterator[str]:
    if not gpus:
        return
    for name, partition in policy.partitions.items():
        for pattern in partition.gpus:
            if not any(pattern.matches(card) for card in gpus):
                yield f'partitions.{name}.gpus: "{pattern.text}" names no card of the pool.'
    loose = [f"{card.node}:{card.index}" for card in gpus if policy.partition_of(card) is None]
    if loose:
        yield f"no partition names {_listed(loose)}: nothing runs there."


def _nobodys(policy: Policy) -> Iterator[str]:
    if policy.default_group is None:
        yield "default_group is null: a user of no group gets CPUs only."


def _unheard(policy: Policy) -> Iterator[str]:
    notify = policy.notify
    if not (notify.smtp or notify.webhook):
        asked = [f"users.{name}.notify" for name, user in policy.users.items() if user.notify]
        asked += ["notify.events"] if notify.events else []
        if asked:
            yield f"{_listed(asked)}: neither smtp nor webhook is set, so nobody is told."
    elif not (notify.webhook or notify.admins):
        yield "notify.admins names nobody: who hears of a lost card, a full disk, a broken service?"


def _walk(data: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in data.items():
        here = (*path, key)
        yield here, value
        if isinstance(value, Mapping):
            yield from _walk(value, here)


def _matches(path: Path, pattern: str) -> bool:
    wanted = pattern.split("/")
    return len(path) == len(wanted) and all(map(fnmatchcase, map(str, path), wanted))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
