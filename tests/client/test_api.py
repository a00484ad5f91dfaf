"""The REST interface in Python, and staying with jobs: logs, events, ends."""

from __future__ import annotations

import os

import pytest

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError, ServiceDown
from jupyter_gpupool.client.following import PATIENCE, follow_logs, wait
from jupyter_gpupool.client.sse import Event, parse_events
from jupyter_gpupool.client.tarball import Content, pack
from jupyter_gpupool.client.transport import Connection


def job(number, state, attempt=1):
    return {"id": number, "state": state, "attempt": attempt}


def test_every_error_reply_is_a_pool_error(service, client):
    error = {"error": {"code": "not_found", "message": "There is no job 7.", "hint": None}}
    service.answer = lambda call: service.reply(error, status=404)
    for ask in (
        lambda: client.job(7),
        lambda: client.cancel(7),
        lambda: client.artifact(7, "x"),
        client.queue,
    ):
        with pytest.raises(PoolError, match=r"^There is no job 7\.$"):
            ask()


def test_a_reply_that_is_no_json_is_a_pool_error(service, client):
    service.answer = lambda call: service.reply(b"<html>")
    with pytest.raises(PoolError, match="no JSON"):
        client.whoami()


def test_a_submit_whose_answer_is_lost_is_sent_again_with_the_same_key(service, client):
    service.answer = lambda call: service.reply({"id": 1}, status=201, drop=len(service.calls) == 1)
    assert client.submit({"kind": "command"}) == {"id": 1}
    first, second = service.calls
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert first.json == second.json == {"kind": "command"}
    client.submit({"kind": "command"})
    assert service.calls[-1].headers["Idempotency-Key"] != first.headers["Idempotency-Key"]


@pytest.mark.parametrize(("known", "methods"), [(200, ["HEAD", "POST"]), (404, ["HEAD", "PUT", "POST"])])
def test_a_snapshot_is_uploaded_unless_the_service_has_it(service, client, known, methods):
    snapshot = pack({"a.py": Content(b"pass")})
    service.answer = lambda call: service.reply({"id": 1}, status=known if call.method == "HEAD" else 201)
    client.submit({}, snapshot)
    assert [call.method for call in service.calls] == methods
    assert service.calls[0].key == f"HEAD snapshots/{snapshot.sha256}"
    assert service.calls[-2].body in (b"", snapshot.data)


def test_paths_and_methods(service, client):
    service.answer = lambda call: service.reply({"jobs": [], "artifacts": []})
    client.jobs(state="queued", limit=5)
    client.jobs()
    client.dry_run({"kind": "script"})
    client.hold(3)
    client.artifact(3, "a b/c.txt")
    client.give_back(4)
    client.shutdown(keep_jobs=True)
    client.set_policy("groups: {}", apply=False, source="site.yaml")
    assert [call.key for call in service.calls] == [
        "GET jobs?state=queued&limit=5",
        "GET jobs",
        "POST jobs?dry_run=true",
        "POST jobs/3/hold",
        "GET jobs/3/artifacts/a%20b/c.txt",
        "DELETE leases/4",
        "POST shutdown",
        "POST policy",
    ]
    assert service.calls[-2].json == {"keep_jobs": True}
    assert service.calls[-1].json == {"text": "groups: {}", "apply": False, "source": "site.yaml"}


def log_part(service, text, offset, *, ended):
    headers = {"X-Gpupool-Offset": str(offset), "X-Gpupool-Ended": str(ended).lower()}
    return service.reply(text, headers=headers)


def test_a_log_is_followed_over_a_second_run_until_the_end(service, client):
    states = iter([job(7, "running"), job(7, "queued"), job(7, "running", 2), job(7, "completed", 2)])
    parts = {
        ("0", "1"): (b"one\n", 4, False),
        ("4", "1"): (b"", 4, True),
        ("0", "2"): (b"two\n", 4, False),
        ("4", "2"): (b"", 4, True),
    }

    def answer(call):
        if "/logs" not in call.path:
            return service.reply(next(states))
        query = dict(pair.split("=") for pair in call.path.partition("?")[2].split("&"))
        text, offset, ended = parts[query["offset"], query["attempt"]]
        return log_part(service, text, offset, ended=ended)

    service.answer = answer
    naps = []
    assert b"".join(follow_logs(client, 7, sleep=naps.append)) == b"one\ntwo\n"
    assert naps == [1.0]


def test_a_log_of_a_queued_job_begins_when_the_job_does(service, client):
    states = iter([job(7, "queued", 0), job(7, "running", 1), job(7, "completed", 1)])
    parts = iter([(b"", 0, False), (b"hello", 5, False), (b"", 5, True)])

    def answer(call):
        if "/logs" not in call.path:
            return service.reply(next(states))
        text, offset, ended = next(parts)
        return log_part(service, text, offset, ended=ended)

    service.answer = answer
    assert list(follow_logs(client, 7)) == [b"hello"]


def test_events_are_read_from_lines():
    lines = [
        ": beat",
        "id: 4",
        "event: job",
        'data: {"job":',
        "data: 7}",
        "",
        "data: plain",
        "",
        "event: x",
        "",
    ]
    assert list(parse_events(lines)) == [
        Event("", "", None),
        Event("4", "job", {"job": 7}),
        Event("4", "message", "plain"),
    ]


def event(number, name="job"):
    return f'id: {number}\nevent: job\ndata: {{"job": {number}}}\n\n'


def test_waiting_looks_only_at_jobs_that_an_event_names(service, client):
    looks = {7: iter([job(7, "running"), job(7, "completed")]), 8: iter([job(8, "failed")])}

    def answer(call):
        if call.path.endswith("/events"):
            return service.reply(chunks=[": beat\n", event(99), event(7)])
        return service.reply(next(looks[int(call.path.rpartition("/")[2])]))

    service.answer = answer
    seen = []
    ended = wait(client, [8, 7], on_event=lambda found: seen.append((found["id"], found["state"])))
    assert [found["id"] for found in ended] == [8, 7]
    assert seen == [(8, "failed"), (7, "running"), (7, "completed")]


def test_waiting_goes_on_after_the_stream_breaks_with_the_last_event_it_saw(service, client):
    looks = iter([job(7, "running"), job(7, "running"), job(7, "completed")])
    opened = []

    def answer(call):
        if call.path.endswith("/events"):
            opened.append(call.headers.get("Last-Event-ID"))
            return service.reply(chunks=["id: 5\nevent: queue\ndata: {}\n\n"])
        return service.reply(next(looks))

    service.answer = answer
    naps = []
    assert wait(client, [7], sleep=naps.append) == [job(7, "completed")]
    assert opened == [None, "5"]
    assert naps == [1.0]


def test_waiting_works_without_a_stream(service, client):
    looks = iter([job(7, "queued"), job(7, "running"), job(7, "completed")])

    def answer(call):
        if call.path.endswith("/events"):
            return service.reply({"error": {"code": "not_found", "message": "No."}}, status=404)
        return service.reply(next(looks))

    service.answer = answer
    assert wait(client, [7], sleep=lambda seconds: None) == [job(7, "completed")]


def test_waiting_ends_with_the_timeout(service, client):
    def answer(call):
        if call.path.endswith("/events"):
            return service.reply({"error": {"code": "not_found", "message": "No."}}, status=404)
        return service.reply(job(7, "running"))

    service.answer = answer
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    with pytest.raises(TimeoutError, match=r"Still not ended after 3 s: 7\."):
        wait(client, [7], 3, clock=lambda: now[0], sleep=sleep)
    assert now == [3.0]


def test_a_silent_stream_is_not_waited_for_longer_than_the_timeout(service, client):
    import threading

    release = threading.Event()

    def silent():
        yield ": beat\n"
        release.wait(10)

    service.answer = lambda call: (
        service.reply(chunks=silent()) if call.path.endswith("/events") else service.reply(job(7, "running"))
    )
    with pytest.raises(TimeoutError, match="Still not ended"):
        wait(client, [7], 0.05, sleep=lambda seconds: None)
    release.set()


def test_waiting_for_a_job_that_is_not_there_is_an_error(service, client):
    service.answer = lambda call: service.reply(
        {"error": {"code": "not_found", "message": "No job 7."}}, status=404
    )
    with pytest.raises(PoolError, match=r"No job 7\."):
        client.wait([7])


def test_events_end_with_service_down_when_the_stream_cannot_be_opened(folder):
    from jupyter_gpupool.client.api import Client
    from jupyter_gpupool.client.transport import Connection

    with pytest.raises(ServiceDown):
        list(Client(Connection(f"unix:{folder}/none.sock")).events())


def test_events_are_yielded_as_they_come(service, client):
    service.answer = lambda call: service.reply(chunks=[event(1), event(2)])
    assert [found.data for found in client.events("0")] == [{"job": 1}, {"job": 2}]
    assert service.calls[0].headers["Last-Event-ID"] == "0"


# -- a pool that its Hub's administrator runs ----------------------------------------------------------


@pytest.fixture
def managed(service, naps):
    """Return a client of the same service, as one that somebody else brings back."""
    return Client(Connection(f"{service.url}?uid={os.geteuid()}", pauses=()))


def test_a_wait_outlives_a_restart_of_the_hub_and_its_service(service, managed):
    away = service.reply({"error": {"code": "unavailable", "message": "The policy is bad."}}, status=503)
    answers = [away, away, service.reply(b"", drop=True), job(7, "running"), job(7, "completed")]

    def answer(call):
        if call.key == "GET events":
            return service.reply({}, status=503)
        found = answers.pop(0)
        return found if not isinstance(found, dict) else service.reply(found)

    service.answer = answer
    assert wait(managed, [7], sleep=lambda seconds: None) == [job(7, "completed")]


def test_a_log_is_followed_over_a_restart_of_the_hub_and_its_service(service, managed, naps):
    away = [True] * 3

    def answer(call):
        if away:
            return service.reply(b"", status=503 if away.pop() else 200)
        if "logs" in call.path:
            text = b"" if "offset=5" in call.path else b"hello"
            return service.reply(text, headers={"X-Gpupool-Offset": "5", "X-Gpupool-Ended": "true"})
        return service.reply(job(7, "completed"))

    service.answer = answer
    assert list(follow_logs(managed, 7, sleep=naps.append)) == [b"hello"]
    assert naps == [1.0] * 3


def test_the_patience_of_a_wait_ends(service, managed):
    now = [0.0]
    service.answer = lambda call: service.reply(b"", status=503)

    def sleep(seconds):
        now[0] += 60

    with pytest.raises(PoolError, match="does not answer"):
        wait(managed, [7], clock=lambda: now[0], sleep=sleep)
    assert now[0] == PATIENCE
    with pytest.raises(TimeoutError):
        wait(managed, [7], 90, clock=lambda: now[0], sleep=sleep)


def test_a_refusal_is_not_waited_out(service, managed):
    service.answer = lambda call: service.reply(
        {"error": {"code": "forbidden", "message": "No."}}, status=403
    )
    with pytest.raises(PoolError, match="No"):
        wait(managed, [7], sleep=pytest.fail)
