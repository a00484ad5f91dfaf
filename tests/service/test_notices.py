"""Messages: once each, to whom they are for, tried again, and none lost or doubled over a restart."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.ledger import Ledger, LedgerUnavailable
from jupyter_gpupool.ledger.grant_records import RequestRecord, RequestState
from jupyter_gpupool.ledger.outbox import MOST_WAITING, Message
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.service import channels, notices
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.notices import FIRST_RETRY_S, GIVE_UP_S, Notices
from jupyter_gpupool.service.occasions import of_request
from jupyter_gpupool.service.scopes import ADMINISTRATOR, Scope
from tests.service.receivers import MailServer, Webhook

SITE = """
partitions: {all: {gpus: ['*:*'], for: [job, session]}}
groups: {team: {quota: {gpus: 2}}}
default_group: team
"""
TEAM = "users: {bob: {notify: [end]}, eve: {notify: []}}\n"


@pytest.fixture
def mail() -> Iterator[MailServer]:
    there = MailServer()
    yield there
    there.close()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    there = Webhook()
    yield there
    there.close()


def site(
    mail: MailServer | None = None, webhook: Webhook | None = None, more: str = "", team: str = TEAM
) -> str:
    notify = {"smtp": mail and mail.url, "webhook": webhook and webhook.url}
    lines = [f"  {name}: {url}" for name, url in notify.items() if url]
    lines += ["  to: '{user}@example.org'", "  from: pool@example.org", *more.splitlines()]
    return SITE + team + "notify:\n" + "\n".join(lines) + "\n"


class Desk:
    """The messages of a ledger at a time that the test says."""

    def __init__(self, path: Path, text: str) -> None:
        self.now = 1_000_000
        self.path = path
        self.policy: Policy = load_policy(text)
        self.ledger = Ledger.open(path, now=self.now, boot_id="b")
        self.notices = Notices(self.ledger, lambda: self.policy, lambda: self.now)

    def tell(self, number: int, user: str | None = "ada") -> None:
        self.notices.tell(Message(f"m {number}", user, f"Message {number}", f"text {number}"))

    def deliver(self) -> None:
        asyncio.run(self.notices.deliver())

    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.path, now=self.now, boot_id="b")
        self.notices = Notices(self.ledger, lambda: self.policy, lambda: self.now)


@pytest.fixture
def desk(tmp_path: Path, mail: MailServer, webhook: Webhook) -> Iterator[Desk]:
    there = Desk(tmp_path / "ledger.sqlite", site(mail, webhook, "  admins: [ops@example.org]"))
    yield there
    there.ledger.close()


def test_a_message_goes_through_each_channel_once(desk: Desk, mail: MailServer, webhook: Webhook) -> None:
    desk.tell(1)
    desk.tell(1)
    desk.deliver()
    desk.deliver()
    desk.restart()
    desk.tell(1)
    desk.deliver()
    assert [got["Subject"] for got in mail.mails] == ["[gpupool] Message 1"]
    assert mail.recipients == [["ada@example.org"]]
    assert "text 1" in mail.mails[0].get_content()
    assert webhook.texts == ["ada: Message 1"]


def test_several_for_one_person_go_as_one(desk: Desk, mail: MailServer, webhook: Webhook) -> None:
    for number in range(60):
        desk.tell(number)
    desk.tell(99, "bob")
    desk.tell(100, None)
    desk.deliver()
    assert sorted(str(got["Subject"]) for got in mail.mails) == [
        "[gpupool] 60 messages",
        "[gpupool] Message 100",
        "[gpupool] Message 99",
    ]
    assert ["ops@example.org"] in mail.recipients
    together = next(got for got in mail.mails if "60" in got["Subject"]).get_content()
    assert "text 49" in together
    assert "text 50" not in together
    assert "And 10 more messages." in together
    assert len(webhook.posts) == 3
    assert "Message 100" in webhook.texts


def test_what_fails_is_tried_again_later_and_later_and_given_up_in_the_end(
    desk: Desk, mail: MailServer, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    webhook.status = 500
    desk.tell(1)
    tried = []
    began = desk.now
    while (due := desk.ledger.outbox.next_due()) is not None:
        desk.now = max(desk.now, due)
        tried.append(desk.now - began)
        desk.deliver()
        assert desk.notices.trouble == "The webhook at 127.0.0.1 refuses (500)."
    assert tried[:4] == [0, FIRST_RETRY_S, 3 * FIRST_RETRY_S, 7 * FIRST_RETRY_S]
    assert max(later - before for before, later in pairwise(tried)) == 3600
    assert GIVE_UP_S < tried[-1] <= GIVE_UP_S + 3600
    assert len(mail.mails) == 1
    said = caplog.text
    assert "s3cret" not in said
    assert said.count("tried again later") == 1
    assert "could not be delivered in a day" in said


def test_one_that_waits_is_delivered_by_the_next_service_and_only_once(
    desk: Desk, mail: MailServer, webhook: Webhook
) -> None:
    webhook.status = 503
    desk.tell(1)
    desk.deliver()
    desk.restart()
    webhook.status = 200
    desk.deliver()
    assert webhook.posts == []
    desk.now += FIRST_RETRY_S
    desk.deliver()
    assert (len(webhook.posts), len(mail.mails)) == (1, 1)
    assert desk.notices.trouble is None


def test_a_recipient_who_is_unknown_keeps_nobody_waiting(desk: Desk, mail: MailServer) -> None:
    mail.refusing = {"ada@example.org": "550 who?", "bob@example.org": "450 later"}
    for number, user in enumerate(("ada", "bob", "eve")):
        desk.tell(number, user)
    desk.deliver()
    assert [got["To"] for got in mail.mails] == ["eve@example.org"]
    mail.refusing = {}
    desk.now += FIRST_RETRY_S
    desk.deliver()
    assert [got["To"] for got in mail.mails] == ["eve@example.org", "bob@example.org"]


def test_what_cannot_be_written_as_a_mail_keeps_nobody_waiting(
    desk: Desk, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = channels.mail

    def unless_ada(to: list[str], **given: Any) -> Any:
        return whole(to=to, **given | ({"subject": "\ud800"} if to == ["ada@example.org"] else {}))

    monkeypatch.setattr(channels, "mail", unless_ada)
    desk.tell(1)
    desk.tell(2, "bob")
    desk.deliver()
    assert [got["Subject"] for got in mail.mails] == ["[gpupool] Message 2"]
    assert desk.ledger.outbox.next_due() == desk.now + FIRST_RETRY_S


def test_a_user_whose_name_makes_no_address_gets_no_mail(
    desk: Desk, mail: MailServer, webhook: Webhook
) -> None:
    for number, name in enumerate(("日本", "a b", "a,b", "a@b@c", "<x@y>", "")):
        desk.tell(number, name)
    desk.deliver()
    assert (mail.mails, len(webhook.posts)) == ([], 6)


def test_a_server_that_never_ends_to_answer_keeps_the_other_waiting_for_a_while_only(
    desk: Desk, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()
    monkeypatch.setattr(channels, "post", lambda url, text: ends.wait(30))
    monkeypatch.setattr(notices, "LONGEST_S", 2)
    desk.tell(1)
    desk.deliver()
    ends.set()
    assert len(mail.mails) == 1
    assert "for a message" in (desk.notices.trouble or "")


def test_where_a_channel_is_gone_its_messages_are_given_up(
    desk: Desk, mail: MailServer, webhook: Webhook
) -> None:
    desk.tell(1)
    desk.policy = load_policy(site(mail))
    desk.deliver()
    assert (len(mail.mails), webhook.posts, desk.ledger.outbox.next_due()) == (1, [], None)


def test_without_channels_nothing_is_kept(desk: Desk) -> None:
    desk.policy = load_policy(SITE)
    desk.tell(1)
    assert desk.ledger.outbox.due(desk.now) == []


def test_so_many_wait_at_most(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MOST_WAITING // 2 + 1):
        desk.tell(number)
    assert len(desk.ledger.outbox.due(desk.now)) == MOST_WAITING
    assert "left out: m 500" in caplog.text


def test_when_nothing_can_be_written_administrators_hear_and_others_when_it_can(
    desk: Desk, mail: MailServer, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise LedgerUnavailable("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(desk.ledger.outbox, "_database", SimpleNamespace(transaction=full))
        desk.tell(1)
        desk.tell(2, None)
        with pytest.raises(LedgerUnavailable):
            desk.deliver()
        assert [got["To"] for got in mail.mails] == ["ops@example.org"]
        assert webhook.texts == ["Message 2"]
    desk.deliver()
    assert [got["To"] for got in mail.mails] == ["ops@example.org", "ada@example.org"]


def test_names_are_left_out_of_a_shared_channel_where_colleagues_see_none(
    desk: Desk, mail: MailServer, webhook: Webhook
) -> None:
    desk.policy = load_policy(site(mail, webhook) + "visibility: groups\n")
    desk.tell(1)
    desk.deliver()
    assert webhook.texts == ["Message 1"]


# -- the service ---------------------------------------------------------------------------------------------


def until(there: Callable[[], Any]) -> None:
    give_up = time.monotonic() + 20
    while not there():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def subjects(mail: MailServer) -> list[str]:
    return [str(got["Subject"]).removeprefix("[gpupool] ") for got in mail.mails]


def test_a_job_tells_what_was_asked_of_it(start: Any, mail: MailServer, webhook: Webhook) -> None:
    call = start("1x2x8GiB", site(mail, webhook))
    good = call.submit("true", name="good", notify=["fail"])
    bad = call.submit("echo 's3cret output'; exit 3", name="bad", notify=["end"])
    quiet = call.submit("exit 3", name="quiet")
    for job in (good, bad, quiet):
        call.wait(job["id"])
    until(lambda: mail.mails and webhook.posts)
    (subject,) = subjects(mail)
    assert subject.startswith(f"Job {bad['id']} (bad) has failed after")
    assert f"jupyter gpupool logs {bad['id']}" in mail.mails[0].get_content()
    (line,) = webhook.texts
    assert f"Job {bad['id']} (bad) has failed" in line
    assert "output" not in line


def test_a_user_has_a_default_and_a_job_may_say_otherwise(start: Any, mail: MailServer) -> None:
    call = start("1x2x8GiB", site(mail, team="", more="  events: [start]"))
    call.wait(call.submit("true", name="plain")["id"])
    until(lambda: len(mail.mails) == 1)  # what waits for one person goes as one
    call.wait(call.submit("true", name="own", notify=["end"])["id"])
    until(lambda: len(mail.mails) == 2)
    call.wait(call.submit("true", name="never", notify=["none"])["id"])
    refused = call("POST", "jobs", call.command("true", notify=["none", "end"]))
    assert (refused.status, refused.error["message"]) == (422, "--notify none stands alone.")
    call.wait(call.submit("true", name="again", notify=["end"])["id"])
    until(lambda: len(mail.mails) == 3)
    by_default, as_asked, again = subjects(mail)
    assert "(plain) runs" in by_default
    assert "(own) has completed" in as_asked
    assert "(again) has completed" in again


def test_who_wants_to_hear_of_a_job_is_told_where_nothing_can_be_sent(start: Any, mail: MailServer) -> None:
    call = start(policy=SITE)
    job = call.submit("sleep 60", notify=["end"])
    assert [text for text in job["warnings"] if "no way to send you a message" in text]
    quiet = call.submit("sleep 60")
    assert not [text for text in quiet["warnings"] if "no way" in text]
    call("POST", "policy", {"text": site(mail), "apply": True})
    assert not [text for text in call.job(job["id"])["warnings"] if "no way" in text]


def test_the_name_of_a_job_stays_on_its_line(start: Any, webhook: Webhook) -> None:
    call = start(policy=site(webhook=webhook, team="", more="  events: [end]"))
    job = call.submit("true", name="a\nbob: Job 2\x1b[31m")
    call.wait(job["id"])
    until(lambda: len(webhook.posts) == 1)
    assert webhook.texts[0].startswith(
        f"root: Job {job['id']} (a bob: Job 2\N{REPLACEMENT CHARACTER}[31m) has"
    )


def test_a_request_is_told_to_who_may_answer_and_the_answer_to_who_asked(
    start: Any, mail: MailServer
) -> None:
    who = "bob"

    def identify(peer: Peer) -> Identity:
        scopes: frozenset[Scope] = frozenset({"read", "submit", "manage"})
        return Identity(who, ADMINISTRATOR if who == "root" else scopes, peer.uid, peer.pid)

    team = "{team: {quota: {gpus: 2}, managers: [ada], members: [ada, bob], user: {gpus: 1}}}"
    text = site(mail, team="").replace("{team: {quota: {gpus: 2}}}", team)
    call = start("1x2x8GiB", text, parts={"identify": identify})
    wants = {"kind": "boost", "wants": {"gpus": 1, "until": "2d"}, "because": "The paper is due."}
    number = call("POST", "requests", wants).body["id"]
    until(lambda: len(mail.mails) == 1)
    who = "ada"
    assert call("POST", f"requests/{number}/approve", {"answer": "go on"}).status == 200
    until(lambda: len(mail.mails) == 2)
    who = "bob"
    number = call("POST", "requests", wants | {"wants": {"gpus": 1, "until": "3d"}}).body["id"]
    call("DELETE", f"requests/{number}")
    until(lambda: len(mail.mails) == 3)
    who = "root"
    assert mail.recipients == [["ada@example.org"], ["bob@example.org"], ["ada@example.org"]]
    asked, answered, _ = subjects(mail)
    assert (asked, answered) == ("Request 1 waits for an answer", "Request 1 is approved")
    assert "bob asks for 1 GPU more for bob in team for 2d. The paper is due." in mail.mails[0].get_content()
    assert "Go on. (ada)" in mail.mails[1].get_content()


def test_where_nobody_manages_administrators_answer() -> None:
    record = RequestRecord(4, "boost", "bob", "team", {}, "Please.", 0)
    (message,) = of_request(record, "1 GPU", [])
    assert (message.user, "approve 4" in message.text) == (None, True)
    assert of_request(replace(record, state=RequestState.DENIED, by="bob"), "1 GPU", ["ada"]) == []


def test_an_array_tells_once(start: Any, mail: MailServer) -> None:
    call = start("1x2x8GiB", site(mail))
    body = call.command(
        'test "$GPUPOOL_ARRAY_INDEX" -ne 2', array="0-3", notify=["end", "start"], name="many"
    )
    array = call("POST", "jobs", body).body["id"]
    until(lambda: len(mail.mails) == 2)
    begun, ended = subjects(mail)
    assert begun == f"Array {array} (many) has begun"
    assert ended == f"Array {array} (many) has ended: 3 completed, 1 failed"
    assert "bad end: 2." in mail.mails[1].get_content()


def test_messages_are_delivered_after_the_service_was_killed(
    spawn: Any, home: Any, mail: MailServer, webhook: Webhook
) -> None:
    webhook.status = 503
    (home.path / "policy.yaml").write_text(site(mail, webhook))
    service = spawn()
    job = service.call.submit("true", notify=["end"])
    service.call.wait(job["id"])
    trouble = "The webhook at 127.0.0.1 refuses (503)."
    until(lambda: trouble in service.call("GET", "/services/gpupool/health").body["troubles"])
    until(lambda: mail.mails)
    service.kill()
    assert "s3cret" not in (home.path / "test.log").read_text()
    webhook.status = 200
    program = (
        "import time; from jupyter_gpupool.service import core, notices; notices.FIRST_RETRY_S = 0\n"
        "import sys; sys.argv[1:] = ['serve', '--allow-root']; begun = time.time()\n"
        "core.open_service.__kwdefaults__['clock'] = lambda: time.time() + 60\n"
        "from jupyter_gpupool.app import main; main()"
    )
    spawn(program=("-c", program))

    def of_the_job() -> list[str]:
        return [text for text in webhook.texts if f"Job {job['id']} " in text]

    until(of_the_job)
    assert (len(mail.mails), len(of_the_job())) == (1, 1)
