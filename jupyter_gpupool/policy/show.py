"""A policy as text, and the difference between two."""

from __future__ import annotations

from jupyter_gpupool.policy.model import Policy


def as_text(policy: Policy) -> str:
    """Return the whole policy, defaults included, as YAML."""
    return ""


def diff(old: Policy, new: Policy) -> list[str]:
    """Return one line per key that differs."""
    return []
