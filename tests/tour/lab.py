"""A running demo of one Lab, and a kernel in it, driven over the same HTTP and websocket as a browser's."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.ioloop import IOLoop
from tornado.websocket import websocket_connect


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Demo:
    """`jupyter gpupool demo --lab` as a child process; what it prints is kept in `printed`."""

    words = ("demo", "--lab", "--no-browser", "--allow-root")
    path = ""

    def __init__(self, folder: Path, *extra: str) -> None:
        self.port = free_port()
        self.folder = folder
        command = [sys.executable, "-m", "jupyter_gpupool.app", *self.words]
        self.process = subprocess.Popen(
            [*command, f"--port={self.port}", f"--dir={folder}", *extra],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.printed = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.printed += line
                self._changed.notify_all()
        self.process.wait()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, pattern: str, *, after: int = 0, timeout: float = 90) -> re.Match[str]:
        """Wait until the terminal shows `pattern` beyond the first `after` characters."""
        with self._changed:
            self._changed.wait_for(lambda: re.search(pattern, self.printed[after:]) or self.ended, timeout)
        found = re.search(pattern, self.printed[after:])
        assert found, f"the demo never said {pattern!r}; it said:\n{self.printed}"
        return found

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return self.wait_for(r"token=(\w+)").group(1)

    def press_enter(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.base}{self.path}{path}",
            method=method,
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            content = reply.read()
        return json.loads(content) if content else None

    def command(self, *words: str) -> str:
        """Run a command of the demo's pool in a terminal."""
        return subprocess.run(
            [sys.executable, "-m", "jupyter_gpupool.app", *words],
            env={**os.environ, "GPUPOOL_HOME": str(self.folder / "home")},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout

    def interrupt(self, timeout: float = 60) -> int:
        """Press Ctrl-C and wait for the end."""
        if not self.ended:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout)

    def processes(self) -> dict[int, str]:
        """All processes, of any session, whose environment or command line names this demo's folder."""
        mark = str(self.folder).encode()
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
                if mark in command or (command and mark in (entry / "environ").read_bytes()):
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found


class Kernel:
    """A kernel that the demo's JupyterLab has started in its work folder."""

    def __init__(self, demo: Demo) -> None:
        self.demo = demo
        self.id = demo.request("POST", "/api/kernels", {"name": "python3", "path": ""})["id"]

    def run(self, code: str, timeout: float = 120) -> str:
        """Run a cell; return the plain text of all its output."""
        return IOLoop().run_sync(lambda: self._run(code), timeout)

    async def _run(self, code: str) -> str:
        url = f"ws://127.0.0.1:{self.demo.port}{self.demo.path}/api/kernels/{self.id}/channels?session_id={uuid.uuid4().hex}"
        socket = await websocket_connect(
            HTTPRequest(url, headers={"Authorization": f"token {self.demo.token}"})
        )
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": "execute_request",
            "username": "",
            "session": "test",
        }
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "allow_stdin": False,
            "stop_on_error": True,
        }
        message = {"header": {**header, "version": "5.3", "date": ""}, "parent_header": {}, "metadata": {}}
        await socket.write_message(json.dumps({**message, "content": content, "channel": "shell"}))
        texts: list[str] = []
        while True:
            reply = json.loads(await socket.read_message() or "{}")
            if reply.get("parent_header", {}).get("msg_id") != header["msg_id"]:
                continue
            kind, content = reply["msg_type"], reply["content"]
            if kind == "stream":
                texts.append(content["text"])
            elif kind in ("execute_result", "display_data"):
                texts.append(content["data"].get("text/plain", "") + "\n")
            elif kind == "error":
                texts.append("\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                socket.close()
                return re.sub(r"\x1b\[[0-9;]*m", "", "".join(texts))
