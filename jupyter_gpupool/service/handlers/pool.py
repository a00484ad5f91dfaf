"""Who asks, and what there is.

Owns: users and cards as replies, each as far as its asker may see. Never: a decision, or a quota.
"""

from __future__ import annotations

from collections import defaultdict

from jupyter_gpupool._version import __version__
from jupyter_gpupool.devices.base import Process
from jupyter_gpupool.devices.strangers import Stranger, strangers
from jupyter_gpupool.engines.base import Started
from jupyter_gpupool.policy.membership import choose_group, groups_of
from jupyter_gpupool.policy.model import Partition
from jupyter_gpupool.scheduler.ends import Ends
from jupyter_gpupool.scheduler.model import Lease, Seconds
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.holders import holders
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.replies import (
    GpuReply,
    NodeReply,
    OnCardReply,
    PartitionReply,
    PoolReply,
    StrangerReply,
    WhoamiReply,
)
from jupyter_gpupool.service.slices import label
from jupyter_gpupool.service.visibility import public, sees_names


async def whoami(call: Call[None]) -> WhoamiReply:
    """Say who asks, and which pool answers."""
    service, who = call.service, call.who
    service.controller.refresh_policy()
    policy = service.policy
    return {
        "user": who.user,
        "groups": [
            {"name": name, "parent": policy.groups[name].parent}
            for name in groups_of(policy, who.user, who.hub_groups)
        ],
        "default_group": choose_group(policy, who.user, None, who.hub_groups),
        "admin": who.admin,
        "simulated": service.pool.simulated,
        "pool": service.config.simulate,
        "version": __version__,
    }


async def pool(call: Call[None]) -> PoolReply:
    """Say which cards there are, and who is on them."""
    service, who = call.service, call.who
    service.controller.refresh_policy()
    named = sees_names(service.policy, who)
    found = await _strangers(service, named=named)
    on_card: dict[str, list[OnCardReply]] = defaultdict(list)
    ends = Ends(service.controller.snapshot(service.now, waiting=()), service.now)
    for lease in service.ledger.held():
        for share in lease.placement.gpus:
            on_card[share.uuid].append(
                {
                    "lease": lease.id,
                    "kind": lease.kind,
                    "user": lease.user if named or lease.user == who.user else None,
                    "group": lease.group,
                    "mib": share.mib,
                    "job": lease.work if lease.kind == "job" else None,
                    "lent_until": iso(_hand_back(ends, lease, service.now)),
                }
            )
    return {
        "simulated": service.pool.simulated,
        "describe": service.description,
        "nodes": _nodes(service, on_card, found),
        "partitions": [_partition(service, name, part) for name, part in service.policy.partitions.items()],
        "inactive": service.policy.inactive(),
        "policy_error": service.policies.error if who.admin else public(service.policies.error),
    }


def _nodes(
    service: Service, on_card: dict[str, list[OnCardReply]], found: dict[str, list[StrangerReply]]
) -> list[NodeReply]:
    cards = {gpu.uuid: gpu for gpu in service.controller.frame.gpus}
    health, drains = service.controller.health, service.ledger.grants.drains
    gpus: dict[str, list[GpuReply]] = defaultdict(list)
    for card in service.pool.cards():
        known = cards.get(card.uuid)
        because = health.get(card.uuid, "") or (
            "" if known else "No partition of the policy names this card."
        )
        free = service.pool.free_mib(card.uuid)
        if service.pool.simulated:
            free = card.memory_mib - sum(lease["mib"] for lease in on_card[card.uuid])
        gpus[card.node].append(
            {
                "uuid": card.uuid,
                "index": card.index,
                "model": card.model,
                "memory_mib": card.memory_mib,
                "partition": known.partition if known else None,
                "free_mib": free,
                "leases": on_card[card.uuid],
                "strangers": found.get(card.uuid, []),
                "available": not because,
                "because": because,
            }
        )
    return [
        {
            "name": node.name,
            "cpus_milli": node.cpus_milli,
            "memory_mib": node.memory_mib,
            "available": node.name not in drains,
            "because": drains[node.name].because if node.name in drains else "",
            "gpus": gpus[node.name],
        }
        for node in service.pool.nodes()
    ]


def _hand_back(ends: Ends, lease: Lease, now: Seconds) -> Seconds | None:
    """Return when a job must leave a lent card; None where nothing is lent."""
    partition = lease.placement.partition
    return ends.hand_back(partition, now) if ends.lent(lease.kind, partition) else None


def _partition(service: Service, name: str, part: Partition) -> PartitionReply:
    cards = [gpu for gpu in service.controller.frame.gpus if gpu.partition == name]
    return {
        "name": name,
        "for": list(part.kinds),
        "gpus": len(cards),
        "slices": [label(cut) for cut in part.slices],
    }


async def _strangers(service: Service, *, named: bool) -> dict[str, list[StrangerReply]]:
    """Return the processes on each real card that belong to no lease; whose and which only where `named`."""
    if service.pool.simulated:
        return {}
    runners = [item for item in await service.engine.list() if isinstance(item, Started)]
    found = await aside(_look, service, runners)
    by_card: dict[str, list[StrangerReply]] = defaultdict(list)
    for one in found:
        by_card[one.uuid].append(
            {
                "pid": one.pid,
                "mib": one.mib,
                "user": one.user if named else None,
                "command": one.command if named else "",
            }
        )
    return by_card


def _look(service: Service, runners: list[Started]) -> list[Stranger]:
    processes: list[Process] = service.pool.processes()
    return strangers(processes, list(holders(service.ledger, runners)))
