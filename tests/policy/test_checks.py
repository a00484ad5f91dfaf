from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpupool.policy.load import Problem, check_against
from jupyter_gpupool.policy.model import Policy

Load = Callable[[str], Policy]
Problems = Callable[[str], list[Problem]]

TWO = """\
partitions:
  a:
    gpus: ["node1:*", "node2:0-3"]
    for: [session]
  b:
    gpus: ["node3:*", {}]
    for: [job]
"""


@pytest.mark.parametrize(
    ("text", "line", "key", "sentence"),
    [
        ("timezone: Asia/Shangai", 1, "timezone", 'not a time zone. Did you mean "Asia/Shanghai"?'),
        ("timezone: Mars", 1, "timezone", '"Mars" is not a time zone. '),
        (
            "timezone: ../etc",
            1,
            "timezone",
            '"../etc" is not a time zone. Write a name such as Europe/Berlin.',
        ),
        (
            "calendars:\n  n:\n    weekly: [Sun 1:00-2:00]\n    holidays: XX",
            4,
            "calendars.n.holidays",
            "holidays are known. Write an ISO 3166 code such as CN or DE-BY.",
        ),
        (
            "calendars: {n: {weekly: [Sun 1:00-2:00], holidays: DE-XX}}",
            1,
            "calendars.n.holidays",
            '"DE-XX" is no country or region',
        ),
        ("default_group: taem", 1, "default_group", 'there is no group "taem". Did you mean "team"?'),
        (
            "groups:\n  a: {}\n  b: {parent: x}",
            3,
            "groups.b.parent",
            'there is no group "x". Write one of: a, b.',
        ),
        (
            "users:\n  bob: {default_group: nlp}",
            2,
            "users.bob.default_group",
            'there is no group "nlp". Write one of: team.',
        ),
        (
            "priorities:\n  urgent:\n    value: 1\n    groups:\n    - team\n    - vision",
            6,
            "priorities.urgent.groups[1]",
            'there is no group "vision". Write one of: team.',
        ),
        (
            "sessions: {idle_action: {night: park}}",
            1,
            "sessions.idle_action.night",
            'there is no calendar "night". The policy has none: define it, or remove this.',
        ),
        ("groups:\n  pool: {}", 2, "groups.pool", '"pool" is the whole pool. Give the group another name.'),
        (
            "jobs:\n  grace: 6m\n  max_grace: 5m",
            2,
            "jobs.grace",
            "6m is more than max_grace, 5m. Write 5m or less, or raise max_grace.",
        ),
    ],
)
def test_what_a_policy_names_must_be_there(
    problems: Problems, text: str, line: int, key: str, sentence: str
) -> None:
    (problem,) = problems(text + "\n")
    assert (problem.line, problem.key) == (line, key)
    assert sentence in str(problem)


LENDING = """\
calendars: {{night: {{weekly: [Mon-Sun 20:00-08:00]}}}}
partitions:
  a:
    gpus: ["node1:*"]
    for: [session]
    lend: {{{}}}
  b: {{gpus: ["node2:*"], for: [session]}}
  c: {{gpus: ["node3:*"], for: [job]}}
"""


@pytest.mark.parametrize(
    ("lend", "key", "sentence"),
    [
        ("to: z, during: night", "to", 'there is no partition "z". Write one of: a, b, c.'),
        ("to: c, during: nigth", "during", 'there is no calendar "nigth". Did you mean "night"?'),
        ("to: a, during: night", "to", "a partition cannot lend to itself. Name another partition."),
        (
            "to: b, during: night",
            "to",
            '"b" takes no jobs, and only jobs use lent cards. Add job to "for" of b',
        ),
    ],
)
def test_cards_are_lent_to_another_partition_of_jobs(
    problems: Problems, lend: str, key: str, sentence: str
) -> None:
    (problem,) = problems(LENDING.format(lend))
    assert (problem.line, problem.key) == (6, f"partitions.a.lend.{key}")
    assert sentence in str(problem)


def test_a_partition_for_jobs_has_nothing_to_lend_to_jobs(problems: Problems) -> None:
    text = LENDING.format("to: c, during: night").replace("for: [session]", "for: [session, job]", 1)
    (problem,) = problems(text)
    assert "a takes jobs itself; only cards of sessions are lent. Leave out lend." in str(problem)


@pytest.mark.parametrize("pattern", ["node2:4-7", "node4:*", "other*:*"])
def test_partitions_beside_each_other(policy: Load, pattern: str) -> None:
    policy(TWO.format(f'"{pattern}"'))


@pytest.mark.parametrize(
    ("pattern", "twice"),
    [("node2:3-7", "node2:0-3"), ("node1:7", "node1:*"), ("n*:0", "node1:*"), ("*:*", "node1:*")],
)
def test_partitions_that_overlap(problems: Problems, pattern: str, twice: str) -> None:
    (problem,) = problems(TWO.format(f'"{pattern}"'))
    assert (problem.line, problem.key) == (6, "partitions.b.gpus[1]")
    assert problem.message == f'"{pattern}" overlaps "{twice}" of a.'
    assert problem.remedy == "A card is in one partition only: narrow one of the two."


def test_a_cycle_of_parents_is_told_once(problems: Problems) -> None:
    (problem,) = problems(
        "groups:\n  d: {parent: c}\n  a: {parent: b}\n  b: {parent: c}\n  c: {parent: a, limit: {gpus: 1}}\n"
    )
    assert (problem.line, problem.key) == (3, "groups.a.parent")
    assert problem.message == "the parents form a cycle: a → b → c → a."
    assert problem.remedy == "Let one of these groups have no parent."


def test_a_group_is_not_its_own_parent(problems: Problems) -> None:
    (problem,) = problems("groups: {a: {parent: a}}\n")
    assert problem.message == "the parents form a cycle: a → a."


# subtree(lab) = 4 + min(6, lends 2) + min(3, lends all) = 9
TREE = """\
groups:
  lab:
    quota: {{gpus: 4, memory: 64GiB}}
    limit: {}
  a: {{parent: lab, quota: {{gpus: 6}}, lend: {{gpus: 2}}}}
  b: {{parent: lab, quota: {{gpus: 1}}}}
  b1: {{parent: b, quota: {{gpus: 2}}}}
"""


@pytest.mark.parametrize("limit", ["{gpus: 9}", "{gpus: 12, memory: 64GiB}", "{cpus: 0}"])
def test_a_limit_at_or_above_the_subtree(policy: Load, limit: str) -> None:
    policy(TREE.format(limit))


@pytest.mark.parametrize(
    ("limit", "key", "message", "remedy"),
    [
        (
            "{gpus: 8}",
            "gpus",
            "8 GPUs is below what the group owns with what the groups under it lend: 9 GPUs.",
            "9",
        ),
        ("{gpus: 1}", "gpus", "1 GPU is below", "Write 9 GPUs or more, or remove the limit."),
        ("{memory: 1GiB}", "memory", "1GiB of memory is below", "Write 64GiB of memory or more"),
    ],
)
def test_a_limit_below_the_subtree(
    problems: Problems, limit: str, key: str, message: str, remedy: str
) -> None:
    (problem,) = problems(TREE.format(limit))
    assert (problem.line, problem.key) == (4, f"groups.lab.limit.{key}")
    assert message in problem.message
    assert remedy in problem.remedy


def test_a_limit_by_type(problems: Problems) -> None:
    (problem,) = problems("groups:\n  a:\n    quota: {gpus.h200: 2}\n    limit: {gpus.h200: 1}\n")
    assert (problem.line, problem.key) == (4, "groups.a.limit.gpus.h200")
    assert "1 h200 GPU is below" in problem.message
    assert "2 h200 GPUs" in problem.message


SLICES = """\
partitions:
  a:
    gpus: ["node1:*"]
    for: [session]
    slices:
    - {share: 1/8}
    - {gpus: 4}
    - {gpus: 0}
"""


def test_slices_that_the_cards_can_give(policy: Load, card: type) -> None:
    cards = [card("node1", i, memory_mib=2048) for i in range(4)]
    assert check_against(policy(SLICES), cards) == []
    assert check_against(policy(SLICES), [card("elsewhere", 0, memory_mib=8)]) == []


def test_slices_that_some_card_cannot_give(policy: Load, card: type) -> None:
    small, whole = check_against(policy(SLICES), [card("node1", 0), card("node1", 2, memory_mib=2047)])
    assert str(small) == (
        "partitions.a.slices[0]: 1/8 of card 2 of node1 is 255MiB, less than the least slice, 256MiB. "
        "Remove this slice, or narrow the partition's cards."
    )
    assert (small.line, whole.line) == (6, 7)
    assert whole.message == "a session stays on one host, and no host here has 4 cards: the most is 2."


def test_a_card_is_in_the_partition_that_names_it(policy: Load, card: type) -> None:
    two = policy(TWO.format('"node4:0"'))
    places = [("node1", 7), ("node2", 3), ("node2", 4), ("node3", 0), ("node4", 0), ("node4", 1)]
    assert [two.partition_of(card(*place)) for place in places] == ["a", "a", None, "b", "b", None]
