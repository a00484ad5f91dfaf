from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpupool.policy.advice import warnings
from jupyter_gpupool.policy.model import Policy

Load = Callable[[str], Policy]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "sessions: {idle_action: park}",
            "sessions.idle_action: park is not active in this version; idle sessions are warned.",
        ),
        (
            "storage: {min_free: 5GiB}",
            "storage.min_free: not active for jobs; with less free only administrators are told.",
        ),
        (
            "enforce: stop",
            "enforce: not active for memory; use above a slice is only observed.",
        ),
        (
            'partitions: {a: {gpus: ["*:*"], for: [job], slices: [{gpus: 1}]}}',
            "partitions.a.slices: not active for jobs; a job names its size.",
        ),
    ],
)
def test_a_key_that_is_not_active_yet_is_told(policy: Load, text: str, sentence: str) -> None:
    assert policy(text + "\n").inactive() == [sentence]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "run_as: service\nenforce: observe\nvisibility: groups\n",
        "run_as: user\ngroups: {a: {managers: [ada]}}\n",
        "priorities: {urgent: {value: 1, preempts: true}}\njobs: {min_run_time: 5m}\n",
        "jobs: {default_time: 1h, grace: 1m, borrow_max_time: 2h}\n",
        "groups: {a: {quota: {gpus: 1}, limit: {gpus: 2}, lend: {gpus: 1}, budget: {gpu_hours: 1}}}\n",
        "sessions: {idle_after: 2h, idle_action: stop}\nnotify: {webhook: 'https://h/x'}\n",
    ],
)
def test_keys_that_hold_are_not_told(policy: Load, text: str) -> None:
    assert policy(text).inactive() == []


def test_many_keys_of_one_kind_are_one_sentence(policy: Load) -> None:
    parts = ", ".join(f'p{n}: {{gpus: ["n{n}:*"], for: [job], slices: [{{gpus: 1}}]}}' for n in range(5))
    (sentence,) = policy(f"partitions: {{{parts}}}\n").inactive()
    assert sentence.startswith("partitions.p0.slices, partitions.p1.slices, partitions.p2.slices and 2 more:")


POOL = {"gpu_milli": 8000, "cpus_milli": 48_000, "memory_mib": 480 * 1024}


def test_more_owed_than_there_is(policy: Load) -> None:
    groups = "groups: {a: {quota: {gpus: 6}}, b: {parent: a, quota: {gpus: 2.5}}}\ndefault_group: a\n"
    (sentence,) = warnings(policy(groups), POOL)
    assert sentence == (
        "oversubscribed: the groups are owed 8.5 GPUs, the pool has 8 GPUs; "
        "work inside quota may have to wait. Lower a quota."
    )


def test_all_owed_is_not_too_much_and_cpus_may_be_overcommitted(policy: Load) -> None:
    groups = "groups: {a: {quota: {gpus: 8, cpus: 100, memory: 480GiB}}}\ndefault_group: a\n"
    assert warnings(policy(groups), POOL) == []


def test_a_type_that_the_pool_does_not_have(policy: Load) -> None:
    groups = "groups: {a: {quota: {gpus.h200: 1}}}\ndefault_group: a\n"
    (sentence,) = warnings(policy(groups), POOL)
    assert sentence.startswith("oversubscribed: the groups are owed 1 h200 GPU, the pool has 0 h200 GPUs;")


def test_nobody_s_group(policy: Load) -> None:
    assert warnings(policy(""), POOL) == ["default_group is null: a user of no group gets CPUs only."]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "notify: {events: [fail]}\nusers: {bob: {notify: [end]}}",
            "users.bob.notify, notify.events: neither smtp nor webhook is set, so nobody is told.",
        ),
        (
            "notify: {smtp: 'smtps://mail.example.org'}",
            "notify.admins names nobody: who hears of a lost card, a full disk, a broken service?",
        ),
        ("notify: {smtp: 'smtps://mail.example.org', admins: [ops@example.org]}", None),
        ("notify: {webhook: 'https://chat.example.org/x', events: [fail]}", None),
        ("users: {bob: {notify: []}}", None),
    ],
)
def test_messages_that_nobody_gets(policy: Load, text: str, sentence: str | None) -> None:
    found = warnings(policy(f"groups: {{a: {{quota: {{gpus: 1}}}}}}\ndefault_group: a\n{text}\n"), POOL)
    assert found == ([sentence] if sentence else [])


def test_cards_without_partition_and_patterns_without_cards(policy: Load, card: type) -> None:
    read = policy('partitions: {a: {gpus: ["node1:0", "nodel:*"], for: [job]}}\ndefault_group: team\n')
    assert warnings(read, POOL, [card("node1", i) for i in range(6)]) == [
        'partitions.a.gpus: "nodel:*" names no card of the pool.',
        "no partition names node1:1, node1:2, node1:3 and 2 more: nothing runs there.",
    ]
