"""The doctor where the system runs the pool: one sentence for each thing that is missing, with its remedy."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from jupyter_gpupool.commands import doctor, hub_checks
from jupyter_gpupool.commands.findings import Finding
from jupyter_gpupool.commands.hub_checks import Site

UNIT = """\
[Unit]
Description=GPU pool

[Service]
ExecStart={program} serve
User={user}
Environment=GPUPOOL_HOME={home}/service
Environment=GPUPOOL_LAUNCHER={home}/launcher
Environment=GPUPOOL_TOKEN_FILE={home}/hub-token
Environment=JUPYTERHUB_API_URL={api}
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, for sockets."""
    made = Path(tempfile.mkdtemp(prefix="gpd-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


def site(folder: Path, *, user: str = "daemon", api: str = "http://127.0.0.1:881/hub/api") -> Site:
    text = UNIT.format(program="/usr/bin/env", user=user, home=folder, api=api)
    (folder / "gpupool.service").write_text(text)
    found = Site.of(folder)
    assert found is not None
    return found


def one(found: Finding, verdict: str, *words: str) -> None:
    assert found.verdict == verdict, found
    for word in words:
        assert word in found.sentence, found


def test_the_unit_says_where_everything_is(folder: Path):
    found = site(folder)
    assert found.program == Path("/usr/bin/env")
    assert (found.account, found.home, found.launcher) == ("daemon", folder / "service", folder / "launcher")
    assert found.hub_socket == folder / "service" / "hub" / "hub.sock"
    assert found.api_url == "http://127.0.0.1:881/hub/api"


def test_what_systemctl_edit_has_added_counts(folder: Path):
    site(folder)
    (folder / "gpupool.service.d").mkdir()
    override = "[Service]\nEnvironment=GPUPOOL_SIMULATE=1x2x8GiB\n"
    (folder / "gpupool.service.d" / "override.conf").write_text(override)
    found = Site.of(folder)
    assert found is not None
    assert found.environment["GPUPOOL_SIMULATE"] == "1x2x8GiB"
    assert found.home == folder / "service"


def test_without_a_unit_there_is_no_system_pool(folder: Path):
    assert Site.of(folder) is None


def test_a_bare_server_is_told_everything_that_is_missing(folder: Path):
    found = {
        finding.subject: finding for finding in hub_checks.findings(site(folder, api="http://127.0.0.1:1/x"))
    }
    missing = {name for name, finding in found.items() if finding.verdict == "problem"}
    assert missing >= {"home", "launcher's folder", "token", "launcher", "service", "hub"}
    assert all("Traceback" not in finding.sentence for finding in found.values())
    one(found["launcher"], "problem", "systemctl start gpupool-launcher")
    one(found["service"], "problem", "systemctl start gpupool")


def test_an_account_that_is_not_there_ends_the_list_with_the_remedy(folder: Path):
    last = list(hub_checks.findings(site(folder, user="no-such-account")))[-1]
    one(last, "problem", "no account 'no-such-account'", "jupyter gpupool install workstation")


def account(uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd(("someone", "x", uid, uid, "", "/", "/bin/sh"))


def test_the_services_account_is_the_systems_own():
    one(hub_checks.of_the_system(account(0)), "problem", "root must not be it")
    one(hub_checks.of_the_system(account(20000)), "problem", "a person's account")
    one(hub_checks.of_the_system(account(300)), "ok")


def test_a_program_that_other_accounts_cannot_reach(folder: Path):
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    program = closed / "jupyter-gpupool"
    program.touch(mode=0o755)
    one(hub_checks.program(program), "problem", f"cannot pass {closed}", "/opt/jupyterhub")
    one(hub_checks.program(folder / "none"), "problem", "No such file")
    one(hub_checks.program(Path("/usr/bin/env")), "ok")


def test_a_python_that_other_accounts_cannot_reach(folder: Path):
    closed, environment = folder / "closed", folder / "bin"
    closed.mkdir(mode=0o700)
    environment.mkdir(mode=0o755)
    (closed / "python").touch(mode=0o755)
    (environment / "python").symlink_to(closed / "python")
    (environment / "jupyter-gpupool").write_text(f"#!{environment}/python\nimport sys\n")
    (environment / "jupyter-gpupool").chmod(0o755)
    one(hub_checks.program(environment / "jupyter-gpupool"), "problem", f"cannot pass {closed}")


@pytest.mark.parametrize(
    ("mode", "verdict", "words"),
    [
        (0o711, "ok", ""),
        (0o755, "ok", ""),
        (0o700, "problem", "chmod 0711"),
        (0o777, "problem", "chmod 0711"),
    ],
)
def test_folders_that_users_can_pass_and_nobody_else_can_write(
    folder: Path, mode: int, verdict: str, words: str
):
    place = folder / "state"
    place.mkdir()
    place.chmod(mode)
    one(hub_checks.folder("home", place, os.geteuid()), verdict, words)


def test_a_folder_of_somebody_else(folder: Path):
    one(hub_checks.folder("home", folder, os.geteuid() + 1), "problem", f"chown {os.geteuid() + 1} {folder}")


@needs_root
def test_a_token_is_for_the_service_alone(folder: Path):
    daemon = pwd.getpwnam("daemon")
    token = folder / "token"
    token.write_text("x")
    token.chmod(0o644)
    one(hub_checks.token(token, daemon), "problem", "open to everybody")
    token.chmod(0o640)
    one(hub_checks.token(token, daemon), "problem", "daemon cannot read", "chgrp daemon")
    os.chown(token, 0, daemon.pw_gid)
    one(hub_checks.token(token, daemon), "ok")
    token.unlink()
    one(hub_checks.token(token, daemon), "problem", "No such file")


@needs_root
def test_a_launcher_is_roots(folder: Path, monkeypatch: pytest.MonkeyPatch):
    path = folder / "launcher.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        one(hub_checks.launcher(path), "ok")
    one(hub_checks.launcher(path), "problem", "systemctl start gpupool-launcher")
    with listening_as(pwd.getpwnam("daemon").pw_uid, folder / "other.sock"):
        one(hub_checks.launcher(folder / "other.sock"), "problem", "only root can start work")


@contextlib.contextmanager
def listening_as(uid: int, path: Path) -> Iterator[None]:
    """Let another account listen at `path`, until the end of the block."""
    ready, said = os.pipe()
    over, end = os.pipe()
    if (child := os.fork()) == 0:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o777)
        os.setuid(uid)
        listener.listen()
        os.write(said, b"1")
        os.close(end)
        os.read(over, 1)
        os._exit(0)
    os.read(ready, 1)
    yield
    os.close(end)
    os.waitpid(child, 0)
    for descriptor in (ready, said, over):
        os.close(descriptor)


def test_the_hubs_api_is_where_no_user_can_listen():
    one(hub_checks.port("http://127.0.0.1:8081/hub/api"), "problem", "hub_bind_url", "below 1024")
    one(hub_checks.port("http://127.0.0.1:881/hub/api"), "ok")
    one(hub_checks.port("https://hub.example:8443/hub/api"), "ok")


class Answer(BaseHTTPRequestHandler):
    """A Hub that knows one token."""

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == "token right"
        self.send_response(200 if known and self.path == "/hub/api/users?limit=1" else 403)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_the_hub_answers_and_knows_the_service(folder: Path):
    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = site(folder, api=f"http://127.0.0.1:{server.server_port}/hub/api")
    token = folder / "hub-token"
    one(hub_checks.hub(found), "problem", "no token")
    token.write_text("right\n")
    one(hub_checks.hub(found), "ok")
    token.write_text("wrong\n")
    one(hub_checks.hub(found), "problem", "does not know the service's token", "restart jupyterhub")
    server.shutdown()
    server.server_close()
    one(hub_checks.hub(found), "problem", "does not answer", "systemctl start jupyterhub")


def test_the_proxy_and_its_node_are_looked_for_beside_the_program(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    scripts = folder / "proxy/node_modules/.bin"
    scripts.mkdir(parents=True)
    program = folder / "bin" / "jupyter-gpupool"
    (scripts / "node").touch(mode=0o755)
    (scripts / "configurable-http-proxy").touch(mode=0o755)
    one(hub_checks.proxy(program), "ok", str(scripts))
    monkeypatch.setattr(shutil, "which", lambda name, path: None if name != "node" else "/usr/bin/node")
    one(hub_checks.proxy(program), "problem", f"npm install --prefix {folder}/proxy")
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    one(hub_checks.proxy(program), "problem", "Node 20")


def test_a_pool_that_is_named_is_the_one_that_is_checked(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """On a server with a system's pool, `GPUPOOL_HOME` still means one's own."""
    monkeypatch.setattr(hub_checks, "UNITS", folder)
    site(folder)
    own = {finding.subject for finding in doctor.findings({"GPUPOOL_HOME": str(folder / "own")})}
    systems = {finding.subject for finding in doctor.findings({"GPUPOOL_SIMULATE": "1x1x8GiB"})}
    assert "token" not in own
    assert {"token", "launcher", "hub"} <= systems
