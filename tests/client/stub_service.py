"""Stands in for the interpreter of the service: started with ``-m jupyter_gpupool.app serve --background``.

``STUB_VERSION``, ``STUB_FAIL`` and ``STUB_DELAY`` say how it behaves; each start adds a line to ``starts``.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

HOME = Path(os.environ["GPUPOOL_HOME"])


class Server(socketserver.UnixStreamServer):
    def handle_error(self, request, client_address):
        """Stay silent when a client hangs up."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self._say(
            {
                "user": "ada",
                "version": os.environ["STUB_VERSION"],
                "pool": os.environ.get("GPUPOOL_SIMULATE"),
                "pid": os.getpid(),
            }
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        (HOME / "shutdowns").write_text(f"{self.path} {body.decode()}")
        self._say({"ok": True})
        threading.Thread(target=self.server.shutdown).start()

    def _say(self, reply: dict) -> None:
        content = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *arguments) -> None:
        """Print nothing."""


def main() -> None:
    assert sys.argv[1:] == ["-m", "jupyter_gpupool.app", "serve", "--background"], sys.argv
    if "STUB_FAIL" in os.environ:
        sys.exit(f"first words\n{os.environ['STUB_FAIL']}")
    if os.fork():
        return
    os.setsid()
    with open(HOME / "starts", "a") as file:
        file.write(f"{os.getpid()}\n")
    (HOME / "environment").write_text(json.dumps(dict(os.environ)))
    time.sleep(float(os.environ.get("STUB_DELAY", "0")))
    path = HOME / "run" / "service.sock"
    path.unlink(missing_ok=True)
    server = Server(str(path), Handler)
    server.serve_forever(poll_interval=0.01)
    path.unlink()


if __name__ == "__main__":
    main()
