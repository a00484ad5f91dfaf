"""Real servers, in threads of the test's process, that take mail and webhook posts."""

from __future__ import annotations

import base64
import json
import socketserver
import threading
import time
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class MailServer:
    """Takes mail by SMTP.

    Attributes
    ----------
    mails
        What was taken.
    refusing
        Answers to a recipient, such as "550 no such user", by the recipient.
    logins
        Who has logged in: name and password.
    answer
        What it says of a mail that it has read.
    hang_up
        Whether it takes no connections at all.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.refusing: dict[str, str] = {}
        self.logins: list[tuple[str, str]] = []
        self.answer = "250 taken"
        self.hang_up = False
        self.connections = 0
        outer = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer.serve(self.rfile, self.wfile)

        self._server = socketserver.ThreadingTCPServer((host, 0), Session)
        self._server.daemon_threads = True
        self.url = f"smtp://{host}:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def serve(self, lines: Any, out: Any) -> None:
        def say(text: str) -> None:
            out.write(f"{text}\r\n".encode())

        self.connections += 1
        if self.hang_up:
            return
        to: list[str] = []
        say("220 here")
        for line in lines:
            word, _, rest = line.decode().strip().partition(" ")
            if word.upper() == "EHLO":
                say("250-here\r\n250 AUTH PLAIN")
            elif word.upper() == "AUTH":
                _, name, password = base64.b64decode(rest.split()[1]).decode().split("\0")
                self.logins.append((name, password))
                say("235 welcome" if password != "wrong" else "535 no, wrong is wrong")
            elif word.upper() == "RCPT":
                address = rest.partition("<")[2].partition(">")[0]
                refused = self.refusing.get(address)
                to += [] if refused else [address]
                say(refused or "250 yes")
            elif word.upper() == "DATA":
                say("354 go on")
                body = b""
                while (part := lines.readline()) != b".\r\n":
                    body += part.removeprefix(b".")
                if self.answer.startswith("250"):
                    self.mails.append(message_from_bytes(body, policy=policy.default))  # type: ignore[arg-type]
                    self.recipients.append(to)
                to = []
                say(self.answer)
            elif word.upper() == "QUIT":
                say("221 bye")
                return
            else:
                say("250 yes")

    def wait(self, count: int) -> list[EmailMessage]:
        """Return all mails, once there are so many."""
        give_up = time.monotonic() + 20
        while len(self.mails) < count:
            assert time.monotonic() < give_up, f"{len(self.mails)} of {count} mails have come"
            time.sleep(0.02)
        return list(self.mails)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Webhook:
    """Takes posts; `status` is what it answers, `headers` what besides."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.paths.append(self.path)
                if outer.status == 200:
                    outer.posts.append(json.loads(body))
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            do_GET = do_POST  # noqa: N815

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hooks/s3cret"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def texts(self) -> list[str]:
        return [post["text"] for post in self.posts]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
