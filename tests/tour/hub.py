"""A running demo of a site, where people log in, take a slice and use their Lab."""

from __future__ import annotations

import html
import http.cookiejar
import json
import re
import time
import urllib.parse
import urllib.request
from typing import Any

from tests.tour.lab import Demo


class HubDemo(Demo):
    """`jupyter gpupool demo` as a child process."""

    words = ("demo", "--no-browser", "--allow-root")

    @property
    def password(self) -> str:
        """What the terminal shows."""
        return self.wait_for(r"password  (\S+)").group(1)


class Person:
    """Somebody who has logged in at the demo; a kernel of theirs is a `Kernel` of this."""

    def __init__(self, demo: HubDemo, name: str) -> None:
        self.demo = demo
        self.port = demo.port
        self.name = name
        self.path = f"/user/{name}"
        self.token = ""
        self._cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._cookies))

    def log_in(self) -> None:
        """Fill in the login form."""
        self._open("/hub/login")
        self._open("/hub/login", username=self.name, password=self.demo.password)

    def log_out(self) -> None:
        """Click on Logout."""
        self._open("/hub/logout")
        self._cookies.clear()

    def take(self, slice: str) -> str:
        """Fill in the form after the login, and wait until the server is there; return the form."""
        form = self._open("/hub/spawn")
        offered = [html.unescape(value) for value in re.findall(r'value="(\[[^"]*\])"', form)]
        choice = next(value for value in offered if json.loads(value)[1] == slice)
        self._open("/hub/spawn", **{"gpupool-choice": choice, "when_full": "wait"})
        deadline = time.monotonic() + 60
        while not self._server().get("ready"):
            assert time.monotonic() < deadline, f"{self.name}'s server does not start:\n{self.demo.printed}"
            time.sleep(0.1)
        self.token = self._hub("POST", f"users/{self.name}/tokens", {"expires_in": 600})["token"]
        return form

    def stop_my_server(self) -> None:
        """Click on Stop My Server, and wait until it is gone."""
        self._hub("DELETE", f"users/{self.name}/server")
        while self._server():
            time.sleep(0.1)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the person's own server."""
        request = urllib.request.Request(
            f"{self.demo.base}{self.path}{path}",
            method=method,
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            content = reply.read()
        return json.loads(content) if content else None

    def _server(self) -> dict[str, Any]:
        found = self._hub("GET", f"users/{self.name}")["servers"].get("", {})
        return dict(found)

    def _hub(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.demo.base}/hub/api/{path}?_xsrf={self._xsrf}",
            method=method,
            headers={"Content-Type": "application/json", "Referer": f"{self.demo.base}/hub/home"},
            data=None if body is None else json.dumps(body).encode(),
        )
        with self._opener.open(request, timeout=30) as reply:
            content = reply.read()
        return json.loads(content) if content else None

    def _open(self, path: str, **fields: str) -> str:
        data = urllib.parse.urlencode(fields).encode() if fields else None
        query = f"?_xsrf={self._xsrf}" if fields else ""
        request = urllib.request.Request(f"{self.demo.base}{path}{query}", data=data)
        request.add_header("Sec-Fetch-Mode", "navigate")
        request.add_header("Accept", "text/html")
        with self._opener.open(request, timeout=60) as reply:
            return str(reply.read().decode())

    @property
    def _xsrf(self) -> str:
        found = [c.value for c in self._cookies if c.name == "_xsrf" and c.path == "/hub/"]
        return (found or [""])[0] or ""
