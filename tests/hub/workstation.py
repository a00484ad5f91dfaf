"""hub_config/workstation as installed, in other folders and ports: root's launcher, the service, the Hub."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import urllib.request
from pathlib import Path

from jupyter_gpupool.commands.demo.files import site_files
from jupyter_gpupool.commands.demo.hub import proxy_path
from jupyter_gpupool.commands.hub_checks import Site as Unit
from tests.conftest_accounts import Accounts
from tests.hub.process import until
from tests.tour.lab import free_port

READY = site_files().parent / "workstation"


class Workstation:
    """The three units of one server, started as systemd would."""

    def __init__(self, folder: Path, accounts: Accounts, python: Path) -> None:
        self.folder, self.accounts, self.python = folder, accounts, python
        self.home, self.launcher = folder / "service", folder / "launcher"
        ports = {":80": free_port(), ":881": free_port(), ":882": free_port()}
        self.url = f"http://127.0.0.1:{ports[':80']}"
        self._words = {
            "/var/lib/gpupool": str(folder),
            'service_user="gpupool"': f'service_user="{accounts.service.name}"',
            "User=gpupool": f"User={accounts.service.name}",
            "/opt/jupyterhub/bin/jupyter-gpupool": f"{python.parent}/jupyter-gpupool",
            **{f'127.0.0.1{port}"': f'127.0.0.1:{free}"' for port, free in ports.items()},
            "127.0.0.1:881/": f"127.0.0.1:{ports[':881']}/",
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def prepare(self, more: str = "") -> None:
        """Make what `install workstation` makes; `more` is added to the Hub's configuration."""
        self.folder.chmod(0o711)
        for place, uid in ((self.home, self.accounts.service.uid), (self.launcher, 0)):
            place.mkdir(mode=0o711)
            place.chmod(0o711)
            os.chown(place, uid, -1)
        (self.folder / "hub").mkdir()
        for name in ("jupyterhub_config.py", "gpupool.service", "policy.yaml"):
            (self.folder / name).write_text(self._here((READY / name).read_text()))
        with (self.folder / "jupyterhub_config.py").open("a") as config:
            config.write(more)
        policy = self.home / "policy.yaml"
        policy.write_text((self.folder / "policy.yaml").read_text())
        os.chown(policy, self.accounts.service.uid, -1)
        token = self.folder / "hub-token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o640)
        os.chown(token, 0, self.accounts.service.gid)

    def _here(self, text: str) -> str:
        for there, here in self._words.items():
            text = text.replace(there, here)
        return text

    def start_launcher(self) -> None:
        words = ["--state", str(self.launcher), "--service-user", self.accounts.service.name]
        self._start("launcher", ["launcher", *words, "--snapshots", str(self.home / "snapshots")])

    def start_service(self) -> None:
        told = Unit.of(self.folder)
        assert told is not None
        environment = {**told.environment, "GPUPOOL_SIMULATE": "1x2x8GiB"}
        self._start("service", ["serve"], environment, as_account=self.accounts.service.name)

    def start_hub(self) -> None:
        command = [str(self.python), "-m", "jupyterhub", "-f", str(self.folder / "jupyterhub_config.py")]
        self._run("hub", command, {"PATH": f"{self.python.parent}:{proxy_path()}"}, cwd=self.folder / "hub")
        until(self.answers, "the Hub answers", self.tail)

    def _start(
        self, name: str, words: list[str], environment: dict[str, str] | None = None, as_account: str = ""
    ) -> None:
        become = [str(self.python), "-m", "jupyter_gpupool.hub.become", as_account] if as_account else []
        command = [*become, str(self.python), "-m", "jupyter_gpupool.app", *words]
        self._run(name, command, environment or {}, cwd=Path("/"))

    def _run(self, name: str, command: list[str], environment: dict[str, str], cwd: Path) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environment},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def answers(self) -> bool:
        """Whether Hub, proxy and service answer, and the service has found the launcher."""
        assert self.processes["hub"].poll() is None, self.tail()
        with contextlib.suppress(OSError):
            reply = urllib.request.urlopen(f"{self.url}/services/gpupool/health", timeout=5)
            return bool(json.loads(reply.read())["status"] == "ok")
        return False

    def stop(self, name: str) -> None:
        process = self.processes[name]
        if process.poll() is None:
            process.terminate()
        process.wait(60)

    def servers(self) -> dict[int, int]:
        """Return the uid of each notebook server of this place, by process."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
                if b"singleuser" in words and str(self.folder).encode() in ((entry / "environ").read_bytes()):
                    found[int(entry.name)] = entry.stat().st_uid
        return found

    def close(self) -> None:
        for name in reversed(self.processes):
            self.stop(name)
        for pid in self.servers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def tail(self) -> str:
        return "\n".join(f"{log}:\n{log.read_text()[-3000:]}" for log in self.folder.glob("*.log"))
