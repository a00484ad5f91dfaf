"""A policy file's text to a `Policy`, or to all that is wrong with it.

Owns: the order of the steps and the wording of shape errors. Never: files; it is a function of the text.
"""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpupool.policy.cards import CardInfo
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.policy.problems import Problem


def load_policy(text: str, *, source: str = "policy.yaml") -> Policy:
    """Return the policy that `text` describes.

    Raises
    ------
    PolicyError
        With every problem found: line, key, message, remedy.
    """
    return Policy.model_validate({})


def check_against(policy: Policy, gpus: Sequence[CardInfo]) -> list[Problem]:
    """Return what is wrong with the policy for these cards."""
    return []
