"""The report and the history in words, as tables, as CSV."""

from __future__ import annotations

import csv
import io
from datetime import UTC

import pytest

from jupyter_gpupool.client import past
from jupyter_gpupool.client.text import Clock, seconds_of
from tests.faces.samples import HISTORY, REPORT, USED

CLOCK = Clock(seconds_of("2026-11-30T12:00:00Z"), UTC)


def test_the_whole_period_in_sentences():
    assert past.sentences(REPORT, CLOCK) == [
        "23 Nov 00:00 to 00:00: 12.5 of 336.0 GPU hours were used (4 %).",
        "Each card was in use 1.8 hours a day; by its memory, 1.5.",
        "The devices were busy 25 % of the time, over 10 GPU hours that were measured.",
        "3 jobs were submitted; ended: 2 completed, 1 failed.",
        "Jobs waited 12 min on average, 95 % of them at most 1 h; 1 run had to leave for others.",
        "5 sessions: 95 % waited at most 4 s; 2 times one was idle, 3.5 hours in all.",
    ]


@pytest.mark.parametrize(
    ("simulated", "sentence"), [(True, "simulated cards measure nothing"), (False, "nothing was measured")]
)
def test_what_was_not_measured_is_said_and_not_zero(simulated, sentence):
    total = {**REPORT["total"], "utilisation": None, "wait_mean_s": None, "wait_p95_s": None, "sessions": 0}
    said = past.sentences({**REPORT, "total": total, "simulated": simulated, "user": "ada"}, CLOCK)
    assert "23 Nov 00:00 to 00:00, ada: 12.5" in said[0]
    assert sentence in said[2]
    assert not any("waited" in line for line in said)


def test_one_table_or_all():
    every = past.report(REPORT, CLOCK)
    assert [line.split()[0] for line in every if line.isupper()] == ["GROUP", "GROUP", "DAY", "CARD"]
    assert past.report(REPORT, CLOCK, by="user")[-3:] == [
        "GROUP   USER    GPU H  BUSY  JOBS  COMPLETED  FAILED    WAIT  WAIT 95 %  STOPS  SESSIONS  IDLE H",
        "vision  ada      12.5  25 %     3          2       1  12 min        1 h      1         5     3.5",
        "vision  others   12.5           3                     12 min        1 h      1         5     3.5",
    ]
    assert "25.0 of 2,000" in past.report(REPORT, CLOCK, by="group")[-1]


@pytest.mark.parametrize("by", past.BY)
def test_csv_has_plain_numbers_and_nothing_where_nothing_is_known(by):
    rows = list(csv.DictReader(io.StringIO(past.as_csv(REPORT, by))))
    assert len(rows) == len(past.rows(REPORT, by))
    if by == "user":
        ada, others = rows
        assert (ada["user"], ada["gpu_hours"], ada["completed"], ada["timed_out"]) == (
            "ada",
            "12.5",
            "2",
            "0",
        )
        assert (others["user"], others["utilisation"], others["completed"]) == ("", "", "0")
    if by == "group":
        assert (rows[0]["budget_gpu_hours"], rows[0]["budget_spent_gpu_hours"]) == ("2000.0", "25.0")
    if by == "day":
        assert (rows[0]["date"], rows[0]["touched_hours_per_card_day"]) == ("2026-11-29", "1.8")
    if by == "card":
        assert (rows[0]["node"], rows[0]["index"]) == ("node3", "3")


def test_a_name_in_csv_stays_one_cell():
    row = {"group": 'a,"b"', "user": "x\ny", **USED}
    text = past.as_csv({**REPORT, "use": [row]}, "user")
    assert list(csv.reader(io.StringIO(text)))[1][:2] == ['a,"b"', "x\ny"]


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x"])
def test_a_name_in_csv_is_no_formula(name):
    row = {"group": name, "user": "ada", **USED}
    text = past.as_csv({**REPORT, "use": [row]}, "user")
    assert list(csv.reader(io.StringIO(text)))[1][0] == f"'{name}"


def test_who_held_what():
    clock = Clock(seconds_of("2026-10-12T12:00:00Z"), UTC)
    said = past.history(HISTORY, clock)
    assert said[:3] == [
        "03:00, under policy 20261001T080000Z-0a1b2c3d.yaml, in force since 1 Oct 08:00.",
        "Nobody held anything of 1 card.",
        "",
    ]
    assert [" ".join(line.split()) for line in said[4:]] == [
        "node3:3 32 GiB 1 job 7 train.py (run 2) ada vision high 01:00 05:00 It was asked to leave for",
        "others (hand-back).",
        "no card session 9 train.py ada vision high 01:00 now It was asked to leave for",
        "others (hand-back).",
    ]
    nothing = {
        **HISTORY,
        "cards": [],
        "without_card": [],
        "policy": None,
        "known_since": "2026-10-12T04:00:00Z",
    }
    assert past.history(nothing, clock) == [
        "03:00, under no known policy.",
        "Records of what ended before 04:00 are kept no longer: more may have been held than is known here.",
    ]
