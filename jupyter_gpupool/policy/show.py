"""The difference between two policies, in the file's own notation.

Owns: one line per key that differs. Never: secrets: addresses of messages are shown without what
follows the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.policy.problems import Path, dotted

_WITH_SECRETS = (("notify", "smtp"), ("notify", "webhook"))


def diff(old: Policy, new: Policy) -> list[str]:
    """Return one line per key that differs: ``groups.vision.quota.gpus: 6 → 8``."""
    before, after = dict(_leaves(_data(old))), dict(_leaves(_data(new)))
    lines = []
    for path in [*before, *(path for path in after if path not in before)]:
        was, now = before.get(path), after.get(path)
        if path in _WITH_SECRETS:
            was, now = was and _without_secret(was), now and _without_secret(now)
        if before.get(path) != after.get(path):
            lines.append(f"{dotted(path)}: {was or 'absent'} → {now or 'absent'}")
    order = [name for name in new.groups if name in old.groups]
    if order != [name for name in old.groups if name in new.groups]:
        lines.append(f"groups: now in the order {', '.join(order)}")
    return lines


def _data(policy: Policy) -> dict[str, Any]:
    data: dict[str, Any] = _pruned(policy.model_dump(mode="json", by_alias=True, exclude_none=True))
    return data


def _pruned(value: Any) -> Any:
    """Return the data without keys that say nothing."""
    if not isinstance(value, dict):
        return value
    kept = {key: _pruned(inner) for key, inner in value.items()}
    return {key: inner for key, inner in kept.items() if inner not in ({}, [])}


def _leaves(data: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, str]]:
    for key, value in data.items():
        here = (*path, key)
        if isinstance(value, dict):
            yield from _leaves(value, here)
        else:
            yield here, _inline(value)


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_inline(item)}" for key, item in value.items()) + "}"
    return str(value)


def _without_secret(address: str) -> str:
    parts = urlsplit(address)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"
