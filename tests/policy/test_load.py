from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpupool.policy.load import PolicyError, Problem, load_policy
from jupyter_gpupool.policy.model import Policy

Load = Callable[[str], Policy]
Problems = Callable[[str], list[Problem]]

WHOLE = """\
timezone: Asia/Shanghai
calendars:
  night: {weekly: ["Mon-Sun 20:00-08:00", "Sat-Sun 00:00-24:00"], holidays: CN}
partitions:
  development:
    gpus: ["node1:*", "node2:*"]
    for: [session]
    slices: [{share: 1/8, cpus: 4, memory: 16GiB}, {share: 1/4}, {gpus: 1}, {gpus: 0}]
    cpu_overcommit: 2.0
    lend: {to: training, during: night, by_day: true, headroom: 8, settle: 1h}
  training: {gpus: ["node3:*", "node4:*"], for: [job]}
defaults: {cpus_per_gpu: 6, memory_per_gpu: 60GiB}
groups:
  vision:
    quota: {gpus: 6, gpus.h200: 2, cpus: 40, memory: 512GiB}
    limit: {gpus: 12}
    lend: {gpus: 6}
    weight: 1
    managers: [ada]
    members: [ada, bob]
    budget: {gpu_hours: 2000, period: month}
    user: {gpus: 2, sessions: 2, session_time: 12h, running_jobs: 4, queued_jobs: 100, job_time: 3d}
  tracking: {parent: vision, quota: {gpus: 0.5}}
users: {bob: {default_group: vision, gpus: 4}}
default_group: null
priorities:
  low: {value: -100, charge: 0.5}
  normal: {value: 0}
  high: {value: 100, charge: 2, running_jobs: 1}
  urgent: {value: 1000, charge: 4, groups: [vision], preempts: true}
sessions: {idle_after: 1h, idle_action: {night: park}}
jobs: {default_time: 8h, grace: 2m, max_grace: 5m, min_run_time: 10m, borrow_max_time: 4h, promises: 100}
run_as: user
visibility: names
enforce: warn
storage: {retention: 30d, min_free: 10GiB}
notify: {smtp: "smtp://mail.example:25", webhook: "https://chat.example/hooks/pool"}
"""


def test_every_key_is_read_in_its_unit() -> None:
    policy = load_policy(WHOLE)
    assert policy.zone.key == "Asia/Shanghai"
    assert policy.calendars["night"].holidays == "CN"
    development = policy.partitions["development"]
    assert development.kinds == ("session",)
    assert [(s.share, s.gpus, s.cpus, s.memory) for s in development.slices] == [
        ((1, 8), None, 4000, 16384),
        ((1, 4), None, None, None),
        (None, 1, None, None),
        (None, 0, None, None),
    ]
    assert development.cpu_overcommit == 2000
    lend = development.lend
    assert lend is not None
    assert (lend.to, lend.during, lend.by_day, lend.headroom, lend.settle) == (
        "training",
        "night",
        True,
        8,
        3600,
    )
    assert (policy.defaults.cpus_per_gpu, policy.defaults.memory_per_gpu) == (6000, 61440)
    vision = policy.groups["vision"]
    assert vision.quota.amounts() == {
        "gpu_milli": 6000,
        "cpus_milli": 40000,
        "memory_mib": 512 * 1024,
        "gpu_milli.h200": 2000,
    }
    assert vision.limit is not None
    assert vision.limit.amounts() == {"gpu_milli": 12000}
    assert vision.budget is not None
    assert (vision.budget.gpu_hours, vision.budget.period) == (2000, "month")
    assert (vision.user.session_time, vision.user.job_time) == (12 * 3600, 3 * 86400)
    assert (vision.parent, policy.groups["tracking"].parent) == ("pool", "vision")
    assert policy.groups["tracking"].quota.amounts() == {"gpu_milli": 500}
    assert (policy.users["bob"].default_group, policy.users["bob"].gpus) == ("vision", 4000)
    assert policy.priorities["low"].charge == 500
    assert policy.priorities["urgent"].groups == ("vision",)
    assert policy.sessions.idle_action == {"night": "park"}
    assert policy.jobs.max_grace == 300
    assert policy.storage.retention == 30 * 86400


def test_absent_keys_have_the_defaults_of_the_design(policy: Load) -> None:
    least = policy("")
    assert least.timezone == "UTC"
    assert {name: (p.value, p.charge, p.running_jobs) for name, p in least.priorities.items()} == {
        "low": (-100, 500, None),
        "normal": (0, 1000, None),
        "high": (100, 2000, 1),
    }
    assert (least.jobs.default_time, least.jobs.grace, least.jobs.promises) == (28800, 120, 100)
    assert least.sessions.idle_action == {"otherwise": "warn"}
    assert least.groups["team"].limit is None
    assert least.groups["team"].lend is None
    assert least.groups["team"].user.gpus is None


def test_the_priority_of_a_job_that_names_none_is_always_there(policy: Load) -> None:
    assert set(policy("priorities: {urgent: {value: 9}}\n").priorities) == {"urgent", "normal"}
    assert policy("priorities: {normal: {value: 5}}\n").priorities["normal"].value == 5


def test_where_a_key_stands_is_no_part_of_what_a_policy_says() -> None:
    assert load_policy(WHOLE) == load_policy("# a comment\n\n" + WHOLE)
    assert load_policy(WHOLE) != load_policy(WHOLE.replace("weight: 1", "weight: 2"))


def test_text_is_not_taken_for_a_number_or_a_truth(policy: Load) -> None:
    read = policy(
        "calendars: {day: {weekly: [Mon-Fri 20:00-08:00], holidays: NO}}\n"
        "groups: {007: {members: [123, on, 1e3, null-island, 2026-10-24]}, yes: {members: [no]}}\n"
        'default_group: "007"\n'
    )
    assert read.calendars["day"].holidays == "NO"  # Norway
    assert read.calendars["day"].weekly[0].start == 20 * 60
    assert read.groups["007"].members == ("123", "on", "1e3", "null-island", "2026-10-24")
    assert read.groups["yes"].members == ("no",)
    assert read.default_group == "007"


def test_aliases_repeat_what_an_anchor_names(policy: Load) -> None:
    read = policy("groups:\n  a: {quota: &owed {gpus: 6}}\n  b: {quota: *owed}\n")
    assert read.groups["a"].quota == read.groups["b"].quota


BAD = [
    # units
    ("defaults: {memory_per_gpu: 60}", 1, "defaults.memory_per_gpu", '"60" has no unit', "60GiB or 60MiB"),
    ("defaults: {memory_per_gpu: 0GiB}", 1, "defaults.memory_per_gpu", '"0GiB" is zero', "above zero"),
    (
        "defaults: {memory_per_gpu: NaN}",
        1,
        "defaults.memory_per_gpu",
        '"NaN" is not a number',
        "such as 4GiB",
    ),
    (
        "defaults: {memory_per_gpu: .nan}",
        1,
        "defaults.memory_per_gpu",
        '".nan" is not a number',
        "such as 4GiB",
    ),
    ("defaults: {memory_per_gpu: -1}", 1, "defaults.memory_per_gpu", '"-1" is negative', "such as 4GiB"),
    ("defaults: {memory_per_gpu: }", 1, "defaults.memory_per_gpu", "nothing is written", "remove the key"),
    ("jobs:\n  default_time: 8", 2, "jobs.default_time", '"8" has no unit', "8h, 8m or 8s"),
    ("jobs:\n  promises: 1.5", 2, "jobs.promises", "not a whole number", "0 or more"),
    ("groups:\n  a:\n    quota: {gpus: -6}", 3, "groups.a.quota.gpus", '"-6" is negative', "such as 4"),
    (
        "groups:\n  a:\n    quota: {gpus.h200: x}",
        3,
        "groups.a.quota.gpus.h200",
        '"x" is not a number',
        "such as",
    ),
    ("priorities: {low: {value: x}}", 1, "priorities.low.value", '"x" is not a whole number', "-100"),
    # keys
    ("enfroce: warn", 1, "enfroce", '"enfroce" is not a key here', 'Did you mean "enforce"?'),
    ("jobs:\n\n  max_grce: 1m", 3, "jobs.max_grce", "is not a key here", 'Did you mean "max_grace"?'),
    ("groups:\n  a:\n    qouta: {gpus: 1}", 3, "groups.a.qouta", "is not a key", 'Did you mean "quota"?'),
    (
        "groups:\n  quota:\n    qouta: {gpus: 1}",
        3,
        "groups.quota.qouta",
        "not a key",
        'Did you mean "quota"?',
    ),
    ("groups:\n  a: {quota: {memroy: 1GiB}}", 2, "groups.a.quota.memroy", "not a key", 'mean "memory"?'),
    ("users: {bob: {defaultgroup: a}}", 1, "users.bob.defaultgroup", "not a key", 'mean "default_group"?'),
    ("storage: {x: 1}", 1, "storage.x", "is not a key here", "Write one of: retention, min_free."),
    ("priorities: {low: {charge: 1}}", 1, "priorities.low.value", "this key is missing", 'Add "value:"'),
    ("jobs: {grace: 1m}\ngroups: {}\njobs: {grace: 2m}", 3, "jobs", "twice, first in line 1", "Keep one"),
    ("jobs:\n  grace: 1m\n  grace: 2m", 3, "jobs.grace", "twice, first in line 2", "Keep one of them"),
    ("jobs:\n  <<: {grace: 1m}", 2, "jobs", "merge key << is not read", "Write the keys out."),
    ("jobs:\n  ? [a]\n  : 1", 2, "jobs", "a key is a list or mapping", "Write a name"),
    # shapes and words
    ("enforce: strict", 1, "enforce", '"strict" is not a value', "Write one of: observe, warn, stop."),
    ("run_as: users", 1, "run_as", '"users" is not a value it can have', 'Did you mean "user"?'),
    ("sessions: {idle_action: sleep}", 1, "sessions.idle_action", '"sleep"', "warn, park, release, stop"),
    ("groups: {a: {members: bob}}", 1, "groups.a.members", '"bob" is not a list', "in brackets"),
    ("groups: {a: {members: [[bob]]}}", 1, "groups.a.members[0]", "a list is not a text", "one name"),
    ("groups: {a: {members: ['']}}", 1, "groups.a.members[0]", "it is empty", "at least one"),
    ("groups: {a: [1]}", 1, "groups.a", "a list is not a set of keys", "{key: value}"),
    ("groups:\n  a:\n\n    - 1", 2, "groups.a", "a list is not a set of keys", "{key: value}"),
    ("groups:\n  a:", 2, "groups.a", "nothing is written here", "remove the key"),
    ("groups: {}", 1, "groups", "it is empty", "at least one"),
    ("priorities: {a: {value: 1, preempts: maybe}}", 1, "priorities.a.preempts", '"maybe"', "true or false"),
    ("priorities: {a: {value: 9999999}}", 1, "priorities.a.value", '"9999999": Input should be', "another"),
    ("notify: {to: me}", 1, "notify.to", '"me" is not a mail address', "name@example.org"),
    ('notify: {from: "a@b\\r\\nBcc: c@d"}', 1, "notify.from", "is not a mail address", "name@example.org"),
    ("notify: {admins: ['<a@b>']}", 1, "notify.admins[0]", "is not a mail address", "name@example.org"),
    ("users: {ada: {notify: [never]}}", 1, "users.ada.notify[0]", "never", "fail"),
    ("notify: {webhook: chat}", 1, "notify.webhook", '"chat" is not an address', "https://host/"),
    # slices, cards, calendars
    (
        'partitions: {a: {gpus: ["*:*"], for: [job], slices: [{}]}}',
        1,
        "partitions.a.slices[0]",
        "either",
        "1/8",
    ),
    (
        'partitions: {a: {gpus: ["*:*"], for: [job], slices: [{share: 1/8, gpus: 1}]}}',
        1,
        "partitions.a.slices[0]",
        "either share or gpus",
        "{share: 1/8}",
    ),
    (
        'partitions: {a: {gpus: ["*:*"], for: [job], slices: [{share: 8/8}]}}',
        1,
        "partitions.a.slices[0].share",
        '"8/8" is not a part of one card',
        "gpus: 1",
    ),
    (
        "partitions: {a: {gpus: [node1], for: [job]}}",
        1,
        "partitions.a.gpus[0]",
        "names no cards",
        "node1:0-3",
    ),
    ('partitions: {a: {gpus: ["*:*"], for: [jobs]}}', 1, "partitions.a.for[0]", '"jobs"', 'mean "job"?'),
    ('partitions: {a: {gpus: ["*:*"]}}', 1, "partitions.a.for", "this key is missing", 'Add "for:"'),
    ("calendars: {n: {weekly: [x]}}", 1, "calendars.n.weekly[0]", "not a weekly interval", "Mon-Fri 20:00"),
    ("calendars: {n: {weekly: [Son 1:00-2:00]}}", 1, "calendars.n.weekly[0]", '"Son" is not a day', "Sun"),
    (
        "calendars: {n: {weekly: [Sun 1:00-25:00]}}",
        1,
        "calendars.n.weekly[0]",
        '"25:00" is not a time',
        "24:00",
    ),
    ("calendars: {n: {weekly: [Sun 1:00-1:00]}}", 1, "calendars.n.weekly[0]", "the same time", "00:00-24:00"),
    ("calendars: {n: {weekly: [Sun 24:00-1:00]}}", 1, "calendars.n.weekly[0]", "starts at 24:00", "next day"),
]


@pytest.mark.parametrize(("text", "line", "key", "message", "remedy"), BAD)
def test_a_mistake_is_named_with_line_key_and_remedy(
    problems: Problems, text: str, line: int, key: str, message: str, remedy: str
) -> None:
    (problem,) = problems(text + "\n")
    assert (problem.line, problem.key) == (line, key)
    assert message in problem.message
    assert remedy in problem.remedy
    assert str(problem) == f"{key}: {problem.message} {problem.remedy}"


def test_all_mistakes_are_told_at_once_one_a_line() -> None:
    text = "groups:\n  a:\n    quota: {memory: 512}\nenfroce: warn\n"
    with pytest.raises(PolicyError) as caught:
        load_policy(text, source="site.yaml")
    assert str(caught.value).splitlines() == [
        'site.yaml:1: partitions: this key is missing. Add "partitions:" with its value.',
        'site.yaml:3: groups.a.quota.memory: memory "512" has no unit. Write 512GiB or 512MiB.',
        'site.yaml:4: enfroce: "enfroce" is not a key here. Did you mean "enforce"?',
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("groups:\n\tvision: {}\n", 2, "there is a tab"),
        ("groups:\n  vision:\n  \tquota: {}\n", 3, "there is a tab"),
        ("timezone: UTC\ngroups:\t{}\n", 2, "there is a tab"),
        ("groups: {a: [}\n", 1, "this is not YAML: "),
        ("groups:\n  a: 'x\n", 3, "this is not YAML: "),
        ("a: 1\n---\nb: 2\n", 2, "this is not YAML: "),
        ("a: *nowhere\n", 1, "this is not YAML: "),
        ("a: b\nc: \x00\n", 2, "a character that no text has"),
        ("[" * 5000, 1, "nested too deeply"),
        ("", 1, "the file is empty."),
        ("# only a comment\n", 1, "the file is empty."),
    ],
)
def test_what_is_no_yaml_is_said_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy(text)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert message in problem.message
    assert problem.remedy


def test_a_file_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"policy\.yaml:1: a list is not a set of keys"):
        load_policy("- a\n- b\n")


def test_aliases_without_end_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"policy.yaml:1: groups\[0\]: the aliases \(\*name\) never end"):
        load_policy("groups: &a [*a]\n")
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    with pytest.raises(PolicyError, match="never end"):
        load_policy(bomb)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_file_with_any_damage_loads_or_is_refused_with_problems(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(WHOLE)))
    length = data.draw(st.integers(0, 12))
    text = WHOLE[:start] + data.draw(st.text(max_size=6)) + WHOLE[start + length :]
    try:
        load_policy(text)
    except PolicyError as error:
        problems = error.problems
    else:
        return
    assert problems
    assert all(1 <= p.line <= text.count("\n") + 2 and p.message and p.remedy for p in problems)


def test_the_whole_policy_written_out_loads_to_the_same_policy() -> None:
    plain = load_policy(WHOLE)
    written = plain.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    assert load_policy(yaml.safe_dump(written, sort_keys=False)) == plain
