"""Rules between the keys of a policy.

Owns: references, the tree of groups, cards in one partition only, limits, and what only the real
cards can tell. Never: the shape of single values (see `model`), or what is merely unwise (see `advice`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from zoneinfo import ZoneInfo, available_timezones

from jupyter_gpupool.policy.amounts import amount_text, key_of
from jupyter_gpupool.policy.cards import CardInfo
from jupyter_gpupool.policy.daysoff import is_region
from jupyter_gpupool.policy.model import OTHERWISE, ROOT, Policy
from jupyter_gpupool.policy.problems import Finding, Path, Problem, one_of
from jupyter_gpupool.policy.units import MIN_SLICE_MIB, format_duration, format_size, slice_mib


def findings(policy: Policy) -> list[Finding]:
    """Return every rule between keys that the policy breaks."""
    cycles = list(_cycles(policy))
    return [
        *_places(policy),
        *_references(policy),
        *_lending(policy),
        *_overlaps(policy),
        *cycles,
        *([] if cycles else _limits(policy)),
    ]


def check_against(policy: Policy, gpus: Sequence[CardInfo]) -> list[Problem]:
    """Return what is wrong with the policy for these cards: slices that some card cannot give."""
    found = []
    for name, partition in policy.partitions.items():
        mine = [card for card in gpus if partition.holds(card)]
        for place, cut in enumerate(partition.slices):
            if message := _cannot_give(mine, cut.share, cut.gpus):
                remedy = "Remove this slice, or narrow the partition's cards."
                found.append(Finding(("partitions", name, "slices", place), message, remedy))
    return [policy.source.problem(finding) for finding in found]


def _cannot_give(cards: Sequence[CardInfo], share: tuple[int, int] | None, gpus: int | None) -> str | None:
    """Return why these cards cannot give a slice; None if they can."""
    if not cards:
        return None
    if share is not None:
        smallest = min(cards, key=lambda card: card.memory_mib)
        size = slice_mib(smallest.memory_mib, *share)
        if size >= MIN_SLICE_MIB:
            return None
        return (
            f"{share[0]}/{share[1]} of card {smallest.index} of {smallest.node} is {format_size(size)}, "
            f"less than the least slice, {format_size(MIN_SLICE_MIB)}."
        )
    most = max(Counter(card.node for card in cards).values())
    if gpus is None or gpus <= most:
        return None
    return f"a session stays on one host, and no host here has {gpus} cards: the most is {most}."


def _places(policy: Policy) -> Iterator[Finding]:
    if not _is_zone(policy.timezone):
        yield Finding(
            ("timezone",),
            f'"{policy.timezone}" is not a time zone.',
            one_of(policy.timezone, sorted(available_timezones()), example="Europe/Berlin"),
        )
    for name, calendar in policy.calendars.items():
        if calendar.holidays is not None and not is_region(calendar.holidays):
            yield Finding(
                ("calendars", name, "holidays"),
                f'"{calendar.holidays}" is no country or region whose holidays are known.',
                "Write an ISO 3166 code such as CN or DE-BY.",
            )
    if policy.jobs.grace > policy.jobs.max_grace:
        longest = format_duration(policy.jobs.max_grace)
        yield Finding(
            ("jobs", "grace"),
            f"{format_duration(policy.jobs.grace)} is more than max_grace, {longest}.",
            f"Write {longest} or less, or raise max_grace.",
        )


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _references(policy: Policy) -> Iterator[Finding]:
    known = {
        "group": list(policy.groups),
        "partition": list(policy.partitions),
        "calendar": list(policy.calendars),
    }
    for path, kind, name in _names(policy):
        if name not in known[kind]:
            yield Finding(path, f'there is no {kind} "{name}".', one_of(name, known[kind]))
    if ROOT in policy.groups:
        yield Finding(("groups", ROOT), f'"{ROOT}" is the whole pool.', "Give the group another name.")


def _names(policy: Policy) -> Iterator[tuple[Path, str, str]]:
    """Yield where the policy names something of its own, what kind of thing, and the name."""
    for name, group in policy.groups.items():
        if group.parent != ROOT:
            yield ("groups", name, "parent"), "group", group.parent
    if policy.default_group is not None:
        yield ("default_group",), "group", policy.default_group
    for name, user in policy.users.items():
        if user.default_group is not None:
            yield ("users", name, "default_group"), "group", user.default_group
    for name, priority in policy.priorities.items():
        for place, allowed in enumerate(priority.groups or ()):
            yield ("priorities", name, "groups", place), "group", allowed
    for name in policy.sessions.idle_action:
        if name != OTHERWISE:
            yield ("sessions", "idle_action", name), "calendar", name
    for name, partition in policy.partitions.items():
        if partition.lend is not None:
            yield ("partitions", name, "lend", "to"), "partition", partition.lend.to
            yield ("partitions", name, "lend", "during"), "calendar", partition.lend.during


def _lending(policy: Policy) -> Iterator[Finding]:
    for name, partition in policy.partitions.items():
        if partition.lend is None or partition.lend.to not in policy.partitions:
            continue
        path, taker = ("partitions", name, "lend", "to"), partition.lend.to
        if taker == name:
            yield Finding(path, "a partition cannot lend to itself.", "Name another partition.")
        elif "job" in partition.kinds:
            yield Finding(
                path, f"{name} takes jobs itself; only cards of sessions are lent.", "Leave out lend."
            )
        elif "job" not in policy.partitions[taker].kinds:
            yield Finding(
                path,
                f'"{taker}" takes no jobs, and only jobs use lent cards.',
                f'Add job to "for" of {taker}, or name another partition.',
            )


def _overlaps(policy: Policy) -> Iterator[Finding]:
    for (name, partition), (later_name, later) in combinations(policy.partitions.items(), 2):
        for place, pattern in enumerate(later.gpus):
            twice = next((mine for mine in partition.gpus if mine.meets(pattern)), None)
            if twice is not None:
                yield Finding(
                    ("partitions", later_name, "gpus", place),
                    f'"{pattern.text}" overlaps "{twice.text}" of {name}.',
                    "A card is in one partition only: narrow one of the two.",
                )


def _cycles(policy: Policy) -> Iterator[Finding]:
    parents = {name: group.parent for name, group in policy.groups.items() if name != ROOT}
    reported: set[str] = set()
    for name, parent in parents.items():
        chain = [name]
        while parent in parents and parent not in chain:
            chain.append(parent)
            parent = parents[parent]
        if parent == name and name not in reported:
            reported.update(chain)
            yield Finding(
                ("groups", name, "parent"),
                f"the parents form a cycle: {' → '.join([*chain, name])}.",
                "Let one of these groups have no parent.",
            )


def _limits(policy: Policy) -> Iterator[Finding]:
    for name, group in policy.groups.items():
        if group.limit is None:
            continue
        owed = _subtree(policy, name)
        for resource, most in group.limit.amounts().items():
            if most < owed[resource]:
                least = amount_text(resource, owed[resource])
                yield Finding(
                    ("groups", name, "limit", key_of(resource)),
                    f"{amount_text(resource, most)} is below what the group owns "
                    f"with what the groups under it lend: {least}.",
                    f"Write {least} or more, or remove the limit.",
                )


def _subtree(policy: Policy, name: str) -> Counter[str]:
    """Return quota + Σ children (subtree − local): what a child lends, all of it unless it says less."""
    owed = Counter(policy.groups[name].quota.amounts())
    for child, group in policy.groups.items():
        if group.parent == name:
            lent = group.lend.amounts() if group.lend else {}
            below = _subtree(policy, child)
            owed.update({key: min(amount, lent.get(key, amount)) for key, amount in below.items()})
    return owed
