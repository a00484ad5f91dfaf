"""Delivering one message: by mail (SMTP), or to a webhook that takes what Slack takes.

Owns: speaking to servers elsewhere, with a time limit, in whichever thread calls; and the sentence for what
went wrong. Never: a secret of their addresses in a sentence, a redirect, a password over an open line.
"""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote, urlsplit

PATIENCE_S = 10.0
_PORTS = {"smtp": 587, "smtps": 465}
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Undelivered(Exception):  # noqa: N818 (reads as the sentence it carries)
    """A message did not arrive.

    Attributes
    ----------
    for_good
        It never will.
    alone
        It is this message that is refused; others may arrive.
    """

    def __init__(self, sentence: str, *, for_good: bool = False, alone: bool = False) -> None:
        super().__init__(sentence)
        self.for_good = for_good
        self.alone = alone or for_good


def mail(*, sender: str, to: list[str], subject: str, text: str, id: str, at: int) -> EmailMessage:
    """Return a mail; the same `id` gives the same Message-ID, by which readers know a repetition."""
    message = EmailMessage()
    message["From"] = Address("GPU pool", addr_spec=sender)
    message["To"] = ", ".join(to)
    message["Subject"] = " ".join(subject.split())
    message["Date"] = format_datetime(datetime.fromtimestamp(at, UTC))
    message["Message-ID"] = f"<{id}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    return message


def send_mail(url: str, message: EmailMessage, *, patience_s: float = PATIENCE_S) -> None:
    """Hand a mail to the server of an address such as ``smtps://user:password@mail.example.org``.

    Raises
    ------
    Undelivered
        The server cannot be reached, or refuses.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    try:
        server = _connected(parts.scheme, host, port, patience_s)
        try:
            _log_in(server, host, parts.username, parts.password)
            refused = server.send_message(message)
        finally:
            with suppress(OSError, smtplib.SMTPException):  # it has the message, or not, by now
                server.quit()
            server.close()
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        sentence = f"The mail server {host} refuses {message['To']} ({codes[0]})."
        raise Undelivered(sentence, for_good=min(codes) >= 500, alone=True) from None
    except smtplib.SMTPDataError as error:
        raise Undelivered(
            f"The mail server {host} refuses a message ({error.smtp_code}).", alone=True
        ) from None
    except smtplib.SMTPResponseException as error:
        raise Undelivered(f"The mail server {host} refuses ({error.smtp_code}).") from None
    except (OSError, smtplib.SMTPException) as error:
        raise Undelivered(f"The mail server {host}:{port} cannot be used ({_kind(error)}).") from None
    if refused:
        raise Undelivered(f"The mail server {host} refuses {', '.join(refused)}.", for_good=True)


def _connected(scheme: str, host: str, port: int, patience_s: float) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if scheme == "smtps":
        return smtplib.SMTP_SSL(host, port, timeout=patience_s, context=context)
    server = smtplib.SMTP(host, port, timeout=patience_s)
    try:
        server.ehlo_or_helo_if_needed()
        if server.has_extn("starttls"):
            server.starttls(context=context)
    except BaseException:
        server.close()
        raise
    return server


def _log_in(server: smtplib.SMTP, host: str, user: str | None, password: str | None) -> None:
    if user is None:
        return
    if not isinstance(server.sock, ssl.SSLSocket) and host not in _LOCAL:
        raise Undelivered(f"The mail server {host} offers no encryption: the password is not sent to it.")
    server.login(unquote(user), unquote(password or ""))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for a refusal: nobody else is to learn what was meant for this address."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def post(url: str, text: str, *, patience_s: float = PATIENCE_S) -> None:
    """Hand lines to a webhook; nothing in them is taken for a command of Slack's, such as ``<!channel>``.

    Raises
    ------
    Undelivered
        The webhook cannot be reached, or refuses.
    """
    host = urlsplit(url).hostname
    body = json.dumps({"text": _as_it_stands(text)}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        urllib.request.build_opener(_NoRedirects).open(request, timeout=patience_s).close()
    except urllib.error.HTTPError as error:
        error.close()
        raise Undelivered(f"The webhook at {host} refuses ({error.code}).") from None
    except (OSError, ValueError) as error:
        raise Undelivered(f"The webhook at {host} cannot be reached ({_kind(error)}).") from None


def _as_it_stands(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _kind(error: BaseException) -> str:
    """Name what went wrong without the words of whoever said it, in which a secret may be."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return type(reason if isinstance(reason, BaseException) else error).__name__
