"""What colleagues, managers and administrators see of each other, and of the policy."""

from __future__ import annotations

import pytest
import yaml

from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.service.events import Bus
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.scopes import ADMINISTRATOR, Scope, permits, scopes_of
from jupyter_gpupool.service.visibility import manages, public, sees_names, without_notify

POLICY = """\
partitions: {all: {gpus: ["*:*"], for: [job]}}
groups:
  lab: {quota: {gpus: 1}, managers: [grace]}
  vision: {parent: lab, quota: {gpus: 1}, managers: [ada]}
  speech: {parent: lab, quota: {gpus: 1}}
"""
SECRET = 'notify:\n  smtp: "smtps://me:pass@mail.example.org/"   # who reads this\n  webhook: https://h.example.org/pass\n'


def who(user: str, *scopes: Scope) -> Identity:
    return Identity(user, frozenset(("read", *scopes)))


@pytest.mark.parametrize(
    ("identity", "groups"),
    [
        (who("ada", "manage"), {"vision"}),
        (who("grace", "manage"), {"lab", "vision", "speech"}),
        (who("bob", "manage"), set()),
        (who("ada", "submit"), set()),
    ],
)
def test_a_manager_has_the_group_and_those_below(identity: Identity, groups: set[str]) -> None:
    policy = load_policy(POLICY)
    names = ("lab", "vision", "speech", "gone")
    assert {name for name in names if manages(policy, identity, name)} == groups


def test_names_are_seen_as_the_policy_says_and_with_the_scope_always() -> None:
    hidden = load_policy(POLICY + "visibility: groups\n")
    assert sees_names(load_policy(POLICY), who("ada"))
    assert not sees_names(hidden, who("ada", "submit", "manage"))
    assert sees_names(hidden, who("ada", "read_all"))


@pytest.mark.parametrize("text", [POLICY + SECRET, SECRET + POLICY, POLICY + "# webhook: of pass\n"])
def test_a_policy_is_shown_without_its_passwords(text: str) -> None:
    shown = without_notify(text)
    assert "pass" not in shown
    assert load_policy(shown) == load_policy(POLICY)
    assert "managers: [grace]" in shown


def test_in_a_policy_on_one_line_too() -> None:
    text = '{notify: {webhook: "https://h.example.org/pass"}, users: {ada: {gpus: 1}}}'
    shown = without_notify(text)
    assert yaml.safe_load(shown) == {"users": {"ada": {"gpus": 1}}}


def test_what_the_file_shares_by_anchors_is_spelt_out() -> None:
    shown = without_notify("a: &owed {gpus: 6}\nb: [*owed, *owed]\nc: '1'\n")
    assert shown == "a: {gpus: 6}\nb: [{gpus: 6}, {gpus: 6}]\nc: '1'\n"


def test_an_error_does_not_say_them_either() -> None:
    error = (
        'policy.yaml:3: notify.smtp: "me:pass" is not an address.\npolicy.yaml:7: groups.a: There is no b.'
    )
    assert public(None) is None
    assert "pass" not in (public(error) or "")
    assert (public(error) or "").startswith("policy.yaml:3: notify: ")
    assert (public(error) or "").endswith("policy.yaml:7: groups.a: There is no b.")


def test_events_say_whose_they_are_only_to_those_who_may_know() -> None:
    bus = Bus(first=1)
    bus.publish("job", {"job": 1, "user": "ada", "name": "secret", "state": "running"})
    bus.publish("policy", {})
    seen = [dict(event.data) for event in bus.after(0, "bob", names=False)]
    assert seen == [{"job": 1, "user": None, "name": None, "state": "running"}, {}]
    assert bus.after(0, "ada", names=False)[0].data["name"] == "secret"
    assert bus.after(0, "bob")[0].data["user"] == "ada"


@pytest.mark.parametrize(
    ("granted", "scopes"),
    [
        (["access:services!service=gpupool"], {"read"}),
        (["access:services"], {"read"}),
        (["access:services!service=other", "read:users"], set()),
        (["custom:gpupool:submit", "custom:gpupool:manage"], {"submit", "manage"}),
        (["custom:gpupool:read:all"], {"read_all"}),
        (["custom:gpupool:spawn"], {"spawn"}),
        (["custom:gpupool:admin"], ADMINISTRATOR),
        (["custom:gpupool:admin!user=ada", "custom:gpupool:report", "custom:gpupool:read"], set()),
    ],
)
def test_what_a_hubs_scopes_permit(granted: list[str], scopes: set[Scope]) -> None:
    assert scopes_of(granted) == scopes


def test_an_administrator_neither_spawns_nor_reports() -> None:
    assert not permits(ADMINISTRATOR, "spawn")
    assert not permits(ADMINISTRATOR, "report")
    assert permits(ADMINISTRATOR, "administer")
