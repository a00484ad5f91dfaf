"""A policy file's text to a `Policy`, or to all that is wrong with it.

Owns: the order of the steps: YAML, shape, rules between keys. Never: files; it is a function of the text.
"""

from __future__ import annotations

from pydantic import ValidationError

from jupyter_gpupool.policy import shape
from jupyter_gpupool.policy.checks import check_against, findings
from jupyter_gpupool.policy.document import read_document
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.policy.problems import PolicyError, Problem

__all__ = ["PolicyError", "Problem", "check_against", "load_policy"]


def load_policy(text: str, *, source: str = "policy.yaml") -> Policy:
    """Return the policy that `text` describes.

    Parameters
    ----------
    source : str
        The file's name in errors.

    Raises
    ------
    PolicyError
        With every problem found: line, key, message, remedy.
    """
    data, lines, problems = read_document(text)
    if problems:
        raise PolicyError(problems, source)
    try:
        policy = Policy.model_validate(data)
    except ValidationError as error:
        found = shape.findings(error.errors(include_url=False), lines)
        raise PolicyError([lines.problem(finding) for finding in found], source) from None
    if found := findings(policy):
        raise PolicyError([lines.problem(finding) for finding in found], source)
    return policy.read_from(lines)
