"""The names of resources: as the file writes them and as the scheduler counts them.

Owns: ``gpus`` ↔ ``gpu_milli``, ``gpus.h200`` ↔ ``gpu_milli.h200``, ``cpus`` ↔ ``cpus_milli``,
``memory`` ↔ ``memory_mib``, and an amount of one in words. Never: who owns how much.
"""

from __future__ import annotations

from jupyter_gpupool.policy.units import format_milli, format_size

RESOURCES = {"gpus": "gpu_milli", "cpus": "cpus_milli", "memory": "memory_mib"}
_KEYS = {resource: key for key, resource in RESOURCES.items()}


def resource_of(key: str) -> str:
    """Return the scheduler's name of a key: ``gpus.h200`` is ``gpu_milli.h200``."""
    name, dot, kind = key.partition(".")
    return RESOURCES[name] + dot + kind


def key_of(resource: str) -> str:
    """Return the file's name of a resource: ``gpu_milli.h200`` is ``gpus.h200``."""
    name, dot, kind = resource.partition(".")
    return _KEYS[name] + dot + kind


def amount_text(resource: str, amount: int) -> str:
    """Return an amount in words: ``6 GPUs``, ``1 h200 GPU``, ``40 CPUs``, ``512GiB of memory``."""
    key, _, kind = key_of(resource).partition(".")
    if key == "memory":
        return f"{format_size(amount)} of memory"
    unit = "CPU" if key == "cpus" else f"{kind} GPU".strip()
    return f"{format_milli(amount)} {unit}{'' if amount == 1000 else 's'}"
