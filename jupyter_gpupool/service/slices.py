"""The slices that a pool offers to a Hub's users, and the session that a choice of one makes.

Owns: the names of slices (``1/8``, ``1``, ``0`` = CPU only), which there are, and which is the smallest.
Pure. Never: whether there is room.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_gpupool.ledger.records import NewSession
from jupyter_gpupool.policy.model import ROOT, Slice
from jupyter_gpupool.policy.units import format_milli, format_size
from jupyter_gpupool.scheduler.model import Request
from jupyter_gpupool.service.errors import invalid
from jupyter_gpupool.service.submission import (
    Rules,
    group_of,
    no_group,
    partition_of,
    priority_of,
    slice_request,
)
from jupyter_gpupool.service.wire import SpawnRequest

CPU_ONLY = Slice(gpus=0)
UNCUT = (Slice(gpus=1), CPU_ONLY)
"""What a partition whose policy lists no slices offers."""
SERVER_TIME_S = 24 * 3600
"""How long a server may run where the policy sets no `session_time`."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A slice, and the partition it must be in; None = any that is for sessions."""

    cut: Slice
    partition: str | None

    @property
    def name(self) -> str:
        """What to ask for."""
        return f"{self.cut.share[0]}/{self.cut.share[1]}" if self.cut.share else str(self.cut.gpus)

    @property
    def gpu_milli(self) -> int:
        """How much of GPUs it is, in thousandths."""
        share = self.cut.share
        return 1000 * share[0] // share[1] if share else 1000 * (self.cut.gpus or 0)

    @property
    def size(self) -> tuple[int, int, int]:
        """Order by size."""
        return self.gpu_milli, self.cut.cpus or 0, self.cut.memory or 0


def offers(rules: Rules, partition: str | None = None) -> list[Offer]:
    """Return what is offered, in one partition or in all that are for sessions, the smallest first.

    A slice that all these partitions offer alike is one offer.
    """
    there = {
        name: found.slices or UNCUT
        for name, found in rules.policy.partitions.items()
        if "session" in found.kinds and partition in (None, name)
    }
    found: dict[Offer, None] = {}
    for name, cuts in there.items():
        for cut in cuts:
            alike = partition is None and all(cut in others for others in there.values())
            found[Offer(cut, None if alike else name)] = None
    return sorted(found, key=lambda offer: offer.size)


def allowed_to(group: str | None, there: list[Offer], partition: str | None = None) -> list[Offer]:
    """Return what of the offers a member of a group may have; who is in none: CPU only, offered or not."""
    if group is not None:
        return there
    return [offer for offer in there if not offer.gpu_milli] or [Offer(CPU_ONLY, partition)]


def new_server(body: SpawnRequest, rules: Rules) -> NewSession:
    """Return the session that a request for a server describes; `rules` are those of its user.

    Raises
    ------
    ApiError
        A value is not allowed; one sentence says which, and what there is.
    """
    partition = partition_of(body.partition, rules, "session")
    group = group_of(body.group, rules)
    there = offers(rules, partition)
    allowed = allowed_to(group, there, partition)
    if body.slice in {offer.name for offer in there} - {offer.name for offer in allowed}:
        raise no_group("Take CPU only, or ask an administrator to add you to a group.")
    offer = _chosen(body.slice, allowed, partition)
    return server_of(offer, group, rules, body.server)


def server_of(offer: Offer, group: str | None, rules: Rules, server: str = "") -> NewSession:
    """Return the session of a server that has a slice."""
    counted = group or ROOT
    return NewSession(
        owner=rules.who.user,
        group=counted,
        name=server or "server",
        request=slice_request(offer.cut, rules, offer.partition),
        limit_s=rules.limits(counted).session_time or SERVER_TIME_S,
        priority=priority_of(None, counted, rules.policy),
        server=f"{rules.who.user}/{server}",
    )


def label(cut: Slice, request: Request | None = None) -> str:
    """Say a slice in words: ``1/8 of a GPU, 4 CPUs, 16GiB``; with what its `request` fills in."""
    if cut.share:
        size = f"{cut.share[0]}/{cut.share[1]} of a GPU"
    else:
        size = "CPU only" if not cut.gpus else "1 GPU" if cut.gpus == 1 else f"{cut.gpus} GPUs"
    cpus = request.cpus_milli if request else cut.cpus
    memory = request.memory_mib if request else cut.memory
    along = [f"{format_milli(cpus)} CPU{'' if cpus == 1000 else 's'}"] if cpus else []
    along += [format_size(memory)] if memory else []
    return ", ".join([size, *along])


def _chosen(asked: str | None, there: list[Offer], partition: str | None) -> Offer:
    where = f" in partition {partition}" if partition else ""
    if not there:
        raise invalid(f"No slice is offered to servers{where}.", "Ask your administrator.", "no_such_slice")
    for offer in there:
        if asked in (None, offer.name):
            return offer
    raise invalid(f'There is no slice "{asked}"{where}.', f"Offered are {_names(there)}.", "no_such_slice")


def _names(there: Iterable[Offer]) -> str:
    return ", ".join(dict.fromkeys(offer.name for offer in there))
