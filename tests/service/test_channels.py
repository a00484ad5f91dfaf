"""Mail and webhooks over real connections: what arrives, and what is said when nothing does."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from jupyter_gpupool.service.channels import Undelivered, mail, post, send_mail
from tests.service.receivers import MailServer, Webhook


@pytest.fixture
def server() -> Iterator[MailServer]:
    there = MailServer()
    yield there
    there.close()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    there = Webhook()
    yield there
    there.close()


def letter(**changes: str) -> object:
    given = {
        "sender": "pool@example.org",
        "subject": "Jöb 7\r\nBcc: eve@example.org",
        "text": "dö\n.\nend",
        "id": "n-1",
    }
    return mail(to=["ada@example.org"], at=0, **given | changes)  # type: ignore[arg-type]


def test_a_mail_arrives_as_it_is(server: MailServer) -> None:
    send_mail(server.url, letter())  # type: ignore[arg-type]
    (got,) = server.mails
    assert got["Subject"] == "Jöb 7 Bcc: eve@example.org"
    assert got["Bcc"] is None
    assert (got["From"], got["To"]) == ("GPU pool <pool@example.org>", "ada@example.org")
    assert (got["Message-ID"], got["Auto-Submitted"]) == ("<n-1@example.org>", "auto-generated")
    assert got.get_content().splitlines() == ["dö", ".", "end"]
    assert server.recipients == [["ada@example.org"]]


def test_a_password_is_unquoted_and_sent_in_the_open_on_this_host_only(server: MailServer) -> None:
    send_mail(server.url.replace("//", "//me%40x:p%2Fw@"), letter())  # type: ignore[arg-type]
    assert server.logins == [("me@x", "p/w")]
    with pytest.raises(Undelivered, match=r"127\.0\.0\.1 refuses \(535\)") as refused:
        send_mail(server.url.replace("//", "//me:wrong@"), letter())  # type: ignore[arg-type]
    assert "wrong" not in str(refused.value)
    assert len(server.mails) == 1


def test_a_password_is_not_sent_in_the_open_to_another_host() -> None:
    elsewhere = MailServer("127.0.0.2")
    with pytest.raises(Undelivered, match="offers no encryption"):
        send_mail(elsewhere.url.replace("//", "//me:p@"), letter())  # type: ignore[arg-type]
    elsewhere.close()
    assert elsewhere.logins == []


@pytest.mark.parametrize(("answer", "for_good"), [("550 no such user", True), ("450 come back later", False)])
def test_a_recipient_that_is_refused_is_one_messages_problem(
    server: MailServer, answer: str, for_good: bool
) -> None:
    server.refusing["ada@example.org"] = answer
    with pytest.raises(Undelivered, match=r"refuses ada@example\.org") as refused:
        send_mail(server.url, letter())  # type: ignore[arg-type]
    assert (refused.value.for_good, refused.value.alone) == (for_good, True)


def test_a_mail_that_is_refused_as_it_is_keeps_no_other_waiting(server: MailServer) -> None:
    server.answer = "554 it looks like spam"
    with pytest.raises(Undelivered, match=r"refuses a message \(554\)") as refused:
        send_mail(server.url, letter())  # type: ignore[arg-type]
    assert (refused.value.for_good, refused.value.alone) == (False, True)


def test_a_server_that_is_down_or_hangs_up_is_everybodys_problem(server: MailServer) -> None:
    server.hang_up = True
    with pytest.raises(Undelivered, match="cannot be used") as refused:
        send_mail(server.url, letter())  # type: ignore[arg-type]
    assert not refused.value.alone
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(Undelivered, match="Connection refused"):
            send_mail(f"smtp://127.0.0.1:{port}", letter())  # type: ignore[arg-type]
        with pytest.raises(Undelivered, match="Connection refused"):
            post(f"http://127.0.0.1:{port}/s3cret", "x")


def test_a_server_that_says_nothing_is_left(server: MailServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Undelivered, match="cannot be used"):
        send_mail(f"smtp://127.0.0.1:{silent.getsockname()[1]}", letter(), patience_s=0.05)  # type: ignore[arg-type]


def test_a_webhook_gets_what_slack_takes(webhook: Webhook) -> None:
    post(webhook.url, "Jöb 7")
    post(webhook.url, "Job 8 (<!channel> & co)")
    assert webhook.texts == ["Jöb 7", "Job 8 (&lt;!channel&gt; &amp; co)"]
    assert set(webhook.paths) == {"/hooks/s3cret"}


@pytest.mark.parametrize("status", [302, 307, 404, 500])
def test_a_webhook_that_refuses_is_named_without_its_secret(webhook: Webhook, status: int) -> None:
    webhook.status, webhook.headers = status, {"Location": webhook.url + "/elsewhere"}
    with pytest.raises(Undelivered) as refused:
        post(webhook.url, "x")
    assert str(refused.value) == f"The webhook at 127.0.0.1 refuses ({status})."
    assert webhook.paths == ["/hooks/s3cret"]
