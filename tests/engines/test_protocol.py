"""Messages are cut from the stream, and wrong ones are refused by name."""

from __future__ import annotations

import asyncio
import io
from dataclasses import asdict, replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.engines.base import Ended, Started, WorkSpec
from jupyter_gpupool.engines.local import protocol
from jupyter_gpupool.engines.local.engine import _Link
from jupyter_gpupool.engines.local.protocol import Lines, ProtocolError, encode

SPEC = WorkSpec(
    key="7/2", job=7, attempt=2, kind="script", argv=("python", "a.py"), environment={"A": "b"},
    workdir="/w", snapshot=None, snapshot_sha256=None, folder="/jobs/7", limit_s=60, grace_s=5,
    cpus_milli=1000, memory_mib=512, owner="ada", entry={"script": "a.py"},
)  # fmt: skip

texts = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


@given(st.lists(st.dictionaries(texts, texts | st.integers())), st.integers(1, 50))
def test_messages_survive_any_cutting_of_the_stream(messages, size):
    stream = b"".join(map(encode, messages))
    lines, found = Lines(), []
    for start in range(0, len(stream), size):
        found.extend(lines.feed(stream[start : start + size]))
    assert found == messages


@pytest.mark.parametrize("line", [b"no json\n", b"[1]\n", b"\xff\n", b"\n", b"[" * 100_000 + b"\n"])
def test_what_is_no_message_is_refused(line):
    with pytest.raises(ProtocolError, match="one JSON object"):
        list(Lines().feed(line))


def test_a_line_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(protocol, "MAX_LINE", 10)
    with pytest.raises(ProtocolError, match="10 bytes"):
        list(Lines().feed(b"x" * 11))


@given(texts, texts, st.dictionaries(texts, texts))
def test_a_specification_survives_the_way(argument, workdir, environment):
    spec = replace(SPEC, argv=("run", argument), workdir=workdir, environment=environment)
    (message,) = Lines().feed(encode(asdict(spec)))
    assert protocol.spec_from_json(message) == spec


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"argv": []}, "names no program"),
        ({"argv": "sh"}, "'argv'"),
        ({"argv": ["a\0b"]}, "NUL"),
        ({"argv": ["\ud800"]}, "must be text"),
        ({"environment": {"A": 1}}, "text"),
        ({"key": "7/1"}, "must read 7/2"),
        ({"folder": "jobs/7"}, "absolute"),
        ({"limit_s": 0}, "over 0 s"),
        ({"grace_s": -1}, "grace"),
        ({"limit_s": True}, "'limit_s'"),
        ({"limit_s": 10**320}, "'limit_s'"),
        ({"owner": None}, "'owner'"),
        ({"surprise": 1}, "'surprise'"),
    ],
)
def test_a_wrong_specification_names_what_is_wrong(changes, says):
    with pytest.raises(ProtocolError, match=says):
        protocol.spec_from_json({**asdict(SPEC), **changes})


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"op": "dance"}, "'dance'"),
        ({}, "None"),
        ({"op": "forget"}, "'key'"),
        ({"op": "stop", "key": "1/1", "cause": "boredom", "grace_s": 1}, "'boredom'"),
        ({"op": "stop", "key": "1/1", "cause": "cancel", "grace_s": "1"}, "'grace_s'"),
        ({"op": "stop", "key": "1/1", "cause": "cancel", "grace_s": 10**320}, "'grace_s'"),
    ],
)
def test_a_wrong_request_names_what_is_wrong(message, says):
    with pytest.raises(ProtocolError, match=says):
        protocol.check_request(message)


@pytest.mark.parametrize(
    "report",
    [
        Started("7/2", 12, 1.5, "/pool/job", True),
        Ended("7/2", None, 9, "limit", "The time limit was reached.", 5, True, 2.5, False),
    ],
)
def test_reports_survive_the_way_and_newer_fields_are_left_out(report):
    value = {**protocol.report_to_json(report), "of_a_newer_version": 1}
    assert protocol.report_from_json(value) == report


@pytest.mark.asyncio
async def test_an_answer_that_nobody_waits_for_any_more_is_no_end_of_the_connection():
    reader = asyncio.StreamReader()
    reader.feed_data(encode({"event": "hello"}))
    link = _Link(reader, cast(asyncio.StreamWriter, io.BytesIO()), print)
    await link.read_hello()
    given_up = asyncio.create_task(link.ask("list", {}))
    await asyncio.sleep(0)
    reader.feed_data(encode({"id": 0, "result": []}))
    given_up.cancel()
    next_one = asyncio.create_task(link.ask("list", {}))
    await asyncio.sleep(0)
    reader.feed_data(encode({"id": 1, "result": ["all"]}))
    assert await next_one == ["all"]
    assert given_up.cancelled()
