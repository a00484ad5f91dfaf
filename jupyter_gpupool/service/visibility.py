"""What of others a user may see, and of the policy who does not administer it.

Owns: when names are shown, which part of a policy's text is for administrators only, and who manages a group.
Pure. Never: fetching any of it.
"""

from __future__ import annotations

import re

import yaml

from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.service.identity import Identity

_SECRET = "notify"
_PROBLEM = re.compile(rf"^(?P<where>.*?:\d+: {_SECRET})\b.*$", re.MULTILINE)


def sees_names(policy: Policy, who: Identity) -> bool:
    """Whether somebody sees the names of others, beside their groups."""
    return policy.visibility == "names" or who.sees_all


def manages(policy: Policy, who: Identity, group: str) -> bool:
    """Whether somebody may control the work of a group: its managers may, and those of groups above it."""
    return "manage" in who.scopes and is_manager(policy, who.user, group)


def is_manager(policy: Policy, user: str, group: str) -> bool:
    """Whether the policy names a user as a manager of a group, or of one above it."""
    while found := policy.groups.get(group):
        if user in found.managers:
            return True
        group = found.parent
    return False


def without_notify(text: str) -> str:
    """Return a policy's text without the section that has passwords in it, and without its comments."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return ""
    root.value = [(key, _spelt_out(value)) for key, value in root.value if key.value != _SECRET]
    return str(yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=110))


def _spelt_out(node: yaml.Node) -> yaml.Node:
    """Return a copy in which what the file shares by anchors stands in full: their names are lost by now."""
    if isinstance(node, yaml.MappingNode):
        pairs = [(_spelt_out(key), _spelt_out(value)) for key, value in node.value]
        return yaml.MappingNode(node.tag, pairs, flow_style=node.flow_style)
    if isinstance(node, yaml.SequenceNode):
        return yaml.SequenceNode(node.tag, list(map(_spelt_out, node.value)), flow_style=node.flow_style)
    assert isinstance(node, yaml.ScalarNode)
    return yaml.ScalarNode(node.tag, node.value, style=node.style)


def public(error: str | None) -> str | None:
    """Return what is wrong with a policy file, without what that section says."""
    return error and _PROBLEM.sub(r"\g<where>: It is wrong; its administrators see how.", error)
