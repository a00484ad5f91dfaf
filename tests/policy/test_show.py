from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.policy.show import diff

Load = Callable[[str], Policy]
DEMO = (Path(__file__).parents[2] / "hub_config" / "demo" / "policy.yaml").read_text()


def test_values_are_shown_in_the_units_of_the_file(policy: Load) -> None:
    old = policy("groups: {a: {quota: {gpus: 1}}}\n")
    new = policy(
        "groups: {a: {quota: {gpus: 1.5, gpus.h200: 1, memory: 2048MiB}}}\njobs: {default_time: 90m}\n"
    )
    assert diff(old, new) == [
        "groups.a.quota.gpus: 1 → 1.5",
        "jobs.default_time: 8h → 1h30m",
        "groups.a.quota.memory: absent → 2GiB",
        "groups.a.quota.gpus.h200: absent → 1",
    ]


def test_addresses_are_shown_without_secrets(policy: Load) -> None:
    text = (
        'notify: {smtp: "smtp://me:s3cret@mail.example:25", webhook: "https://chat.example/hooks/s3cret"}\n'
    )
    shown = "\n".join(diff(policy(""), policy(text)))
    assert "s3cret" not in shown
    assert "https://chat.example" in shown
    assert "smtp://mail.example:25" in shown
    admins = policy("notify: {from: pool@example.org, to: '{user}@example.org', admins: [ops@example.org]}\n")
    assert "notify.admins: absent → [ops@example.org]" in diff(policy(""), admins)
    other = policy(text.replace("hooks/s3cret", "hooks/other"))
    assert diff(policy(text), other) == ["notify.webhook: https://chat.example → https://chat.example"]
    assert diff(policy(""), other)[1] == "notify.webhook: absent → https://chat.example"


def test_equal_policies_do_not_differ() -> None:
    assert diff(load_policy(DEMO), load_policy("# note\n" + DEMO)) == []


def test_each_key_that_differs_is_one_line() -> None:
    new = (
        DEMO.replace("gpus: 6, cpus", "gpus: 8, cpus", 1)
        .replace("settle: 1h", "settle: 90m")
        .replace("enforce: warn\n", "")
        .replace("by_day: true", "by_day: no")
        .replace("      - {share: 1/4, cpus: 5, memory: 24GiB}\n", "")
        .replace("  urgent: {value: 1000, charge: 4, groups: [vision], preempts: true}\n", "")
    )
    lines = diff(load_policy(DEMO), load_policy(new))
    eighth = "{share: 1/8, cpus: 4, memory: 16GiB}"
    quarter = "{share: 1/4, cpus: 5, memory: 24GiB}"
    rest = "{share: 1/2, cpus: 6, memory: 40GiB}, {gpus: 1}, {gpus: 0}"
    assert lines[:3] == [
        f"partitions.development.slices: [{eighth}, {quarter}, {rest}] → [{eighth}, {rest}]",
        "partitions.development.lend.by_day: true → false",
        "partitions.development.lend.settle: 1h → 1h30m",
    ]
    assert "groups.vision.quota.gpus: 6 → 8" in lines
    assert "priorities.urgent.groups: [vision] → absent" in lines
    assert not any(line.startswith("enforce") for line in lines)  # its default says the same


def test_the_order_of_groups_says_something(policy: Load) -> None:
    one, other = policy("groups: {a: {}, b: {}}\n"), policy("groups: {b: {}, c: {}, a: {}}\n")
    assert diff(one, other)[-1] == "groups: now in the order b, a"
