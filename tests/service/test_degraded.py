"""A Hub's service that cannot open: it binds all the same, says why, tries again, and ends when told."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.service import takeover
from jupyter_gpupool.service.config import HubConfig, ServiceConfig
from jupyter_gpupool.service.safety import unsafe_account, unsafe_launcher, unsafe_policy
from jupyter_gpupool.service.serving import why_not
from tests.hub.site import until
from tests.service.conftest import Answer, Caller
from tests.service.real_hub import at_socket, has_ended

GOOD = """
partitions: {all: {gpus: ["*:*"], for: [session, job]}}
groups: {team: {quota: {gpus: 1}}}
default_group: team
run_as: service
"""
PARENT = """
import subprocess, sys, time
with subprocess.Popen(sys.argv[1:]) as child:
    print(child.pid, flush=True)
    time.sleep(600)
"""


class HubsOwn:
    """A Hub's service in a process of its own; the Hub itself is down."""

    def __init__(
        self, home: Home, *, orphan: bool = False, arguments: tuple[str, ...] = (), **environment: str
    ):
        self.home, self.call = home, Caller(home)
        self.log = home.path.parent / f"{home.path.name}.log"
        command = [sys.executable, "-m", "jupyter_gpupool.app", "serve", *(arguments or ("--allow-root",))]
        told = {
            "GPUPOOL_HOME": str(home.path),
            "GPUPOOL_SIMULATE": "1x1x8GiB",
            "GPUPOOL_DEMO": "1",
            "JUPYTERHUB_API_URL": "http://127.0.0.1:9/hub/api",
            "JUPYTERHUB_API_TOKEN": "secret",
            "JUPYTERHUB_SERVICE_NAME": "gpupool",
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PARENT, *command] if orphan else command,
                env={**os.environ, **told, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if orphan else log,
                stderr=log,
            )
        self.pid = int(self.process.stdout.readline()) if self.process.stdout else self.process.pid
        self.socket = Path(environment.get("GPUPOOL_HUB_SOCKET", home.path / "hub" / "hub.sock"))

    def hub(self, method: str, path: str) -> Answer:
        return at_socket(self.socket, method, path, token="any")

    def says(self) -> str:
        """Why it is not open; empty while it does not answer, or is open."""
        try:
            answer = self.hub("GET", "whoami")
        except PoolError:
            return ""
        is_degraded = answer.status == 503 and answer.error["code"] == "not_open"
        return str(answer.error["message"]) if is_degraded else ""

    def refuses(self, words: str) -> None:
        """Wait until it says so."""
        until(lambda: words in self.says(), words, lambda: self.said() + self.says(), patience=30)

    def opens(self) -> None:
        until(lambda: self.pid == self.served_by(), "it opens", self.said, patience=30)

    def served_by(self) -> int | None:
        record = takeover.predecessor(self.home)
        return record["pid"] if record else None

    def said(self) -> str:
        return self.log.read_text()[-4000:]

    def lose_hub(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def end(self) -> int | None:
        if not has_ended(self.pid):
            os.kill(self.pid, signal.SIGTERM)
        until(lambda: has_ended(self.pid), "it ends", self.said)
        code = self.process.poll() if self.pid == self.process.pid else None
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        return code


Serve = Callable[..., HubsOwn]


@pytest.fixture
def serve(home: Home) -> Iterator[Serve]:
    """Start a Hub's service; every job ends with the test."""
    running: list[HubsOwn] = []

    def begin(where: Home = home, **options: Any) -> HubsOwn:
        running.append(HubsOwn(where, **options))
        return running[-1]

    yield begin
    for service in running:
        if takeover.predecessor(service.home):
            service.call("POST", "shutdown", {"keep_jobs": False})
        service.end()


def policy(home: Home, text: str) -> None:
    (home.path / "policy.yaml").write_text(text)


def test_a_bad_policy_with_none_before_is_said_until_it_is_good(serve: Serve, home: Home) -> None:
    policy(home, GOOD.replace("quota", "qouta"))
    service = serve()
    service.refuses("qouta")
    health = service.hub("GET", "/services/gpupool/health")
    assert (health.status, health.body) == (200, {"status": "degraded", "version": __version__})
    for method, path in (
        ("POST", "jobs"),
        ("PUT", "snapshots/0"),
        ("GET", "/anything"),
        ("DELETE", "leases/1"),
    ):
        answer = service.hub(method, path)
        assert (answer.status, answer.headers["x-gpupool-version"]) == (503, __version__)
    policy(home, GOOD)
    service.opens()
    assert service.hub("GET", "/services/gpupool/health").body["status"] == "ok"
    assert service.said().count("cannot open") == 1


def test_what_fails_at_the_last_step_before_it_serves_is_said_too(serve: Serve, home: Home) -> None:
    policy(home, GOOD)
    home.make()
    home.service_record.mkdir()
    service = serve()
    service.refuses(str(home.service_record))
    home.service_record.rmdir()
    service.opens()


def test_who_asked_for_the_connection_to_be_closed_closes_it(serve: Serve, home: Home) -> None:
    policy(home, "nonsense: [")
    service = serve()
    service.refuses("policy.yaml")
    with socket.socket(socket.AF_UNIX) as proxy, proxy.makefile("rb") as replies:
        proxy.connect(str(service.socket))
        for _ in range(2):
            proxy.sendall(b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
            assert replies.readline().split()[1] == b"503"
            headers = dict(line.split(b": ") for line in iter(replies.readline, b"\r\n"))
            replies.read(int(headers[b"Content-Length"]))


def test_ended_while_it_cannot_open_it_has_not_failed(serve: Serve, home: Home) -> None:
    policy(home, "nonsense: [")
    service = serve()
    service.refuses("policy.yaml")
    process = service.process
    os.kill(service.pid, signal.SIGTERM)
    assert process.wait(30) == 0
    assert not service.socket.exists()


@pytest.mark.parametrize(
    ("options", "run_as", "words"),
    [
        ({"GPUPOOL_DEMO": "0"}, "service", "would run as one account"),
        ({"GPUPOOL_HUB_AUTHENTICATOR": "jupyterhub.auth.DummyAuthenticator"}, "user", "DummyAuthenticator"),
        ({"GPUPOOL_LAUNCHER": "/nonexistent/launcher"}, "service", "launcher"),
        pytest.param(
            {"arguments": ("--policy", "policy.yaml")},
            "service",
            "runs as root",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root runs as root"),
        ),
    ],
)
def test_what_would_be_unsafe_or_cannot_work_is_refused_with_a_sentence(
    serve: Serve, home: Home, options: dict[str, Any], run_as: str, words: str
) -> None:
    policy(home, GOOD.replace("run_as: service", f"run_as: {run_as}"))
    serve(**options).refuses(words)


def test_an_unsafe_policy_never_replaces_a_safe_one(serve: Serve, home: Home) -> None:
    policy(home, GOOD)
    service = serve(GPUPOOL_HUB_AUTHENTICATOR="DummyAuthenticator")
    service.opens()
    policy(home, GOOD.replace("run_as: service", "run_as: user"))
    assert "DummyAuthenticator" in service.call("GET", "policy").body["error"]
    assert "run_as: service" in service.call("GET", "policy").body["text"]


def test_an_orphan_of_the_same_hub_gives_way_and_its_jobs_go_on(serve: Serve, home: Home) -> None:
    policy(home, GOOD)
    first = serve(orphan=True)
    first.opens()
    job = first.call.submit("sleep 300")
    first.call.wait(job["id"], "running")
    first.lose_hub()
    second = serve()
    second.opens()
    assert has_ended(first.pid)
    found = second.call.job(job["id"])
    assert (found["state"], found["attempt"]) == ("running", 1)


def test_two_hubs_on_one_home_the_second_is_told_and_the_first_undisturbed(serve: Serve, home: Home) -> None:
    policy(home, GOOD)
    first = serve()
    first.opens()
    other = str(home.path.parent / "other.sock")
    second = serve(JUPYTERHUB_API_URL="http://127.0.0.1:10/hub/api", GPUPOOL_HUB_SOCKET=other)
    second.refuses("for another Hub, the one at http://127.0.0.1:9/hub/api")
    third = serve(JUPYTERHUB_API_URL="http://127.0.0.1:10/hub/api")
    until(lambda: "for another Hub" in third.said().rpartition("cannot open")[2], "it says so", third.said)
    assert first.hub("GET", "/services/gpupool/health").body["status"] == "ok"
    assert first.served_by() == first.pid
    first.call("POST", "shutdown", {})
    until(lambda: first.served_by() in (second.pid, third.pid), "one of them opens", first.said)


def test_an_orphan_that_never_opened_ends_by_itself(serve: Serve, home: Home) -> None:
    policy(home, "nonsense: [")
    first = serve(orphan=True)
    first.refuses("policy.yaml")
    first.lose_hub()
    until(lambda: has_ended(first.pid), "it ends", first.said)


def test_others_can_pass_to_the_socket_and_nowhere_else(serve: Serve, home: Home) -> None:
    policy(home, GOOD)
    serve().opens()
    modes = {
        path.relative_to(home.path).as_posix(): path.stat().st_mode & 0o777 for path in home.path.rglob("*")
    }
    assert (home.path.stat().st_mode & 0o777, modes.pop("hub"), modes.pop("hub/hub.sock")) == (
        0o711,
        0o755,
        0o666,
    )
    open_to_others = {name: oct(mode) for name, mode in modes.items() if mode & 0o077}
    assert {name for name in open_to_others if not (home.path / name).is_symlink()} <= {"policy.yaml"}


HUB = HubConfig("http://127.0.0.1:8081/hub/api", "secret", Path("/x/hub.sock"))
RECORD = {"pid": 7, "hub": HUB.api_url, "parent": 3}


@pytest.mark.parametrize(
    ("record", "parent", "words"),
    [
        (RECORD, 1, None),
        (RECORD, None, None),
        (RECORD, 3, "for this Hub already"),
        ({**RECORD, "hub": "http://elsewhere/hub/api"}, 1, "another Hub"),
        ({**RECORD, "hub": None}, 1, "no Hub started it"),
        ({"pid": 7}, 1, "no Hub started it"),
    ],
)
def test_who_may_be_asked_to_end(record: dict[str, Any], parent: int | None, words: str | None) -> None:
    found = takeover.objection(record, HUB, parent)
    assert (found is None) if words is None else (words in (found or ""))


def test_what_an_environment_says_of_a_hub(home: Home, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("from a file\n")
    told = {"JUPYTERHUB_API_URL": "http://127.0.0.1:8081/base/hub/api", "JUPYTERHUB_BASE_URL": "/base/"}
    found = HubConfig.from_environment({**told, "GPUPOOL_TOKEN_FILE": str(token)}, home)
    assert found is not None
    assert (found.api_token, found.client_id) == ("from a file", "service-gpupool")
    assert (found.base_url, found.prefix) == ("/base/", "/base/services/gpupool/")
    assert found.callback == "/base/services/gpupool/oauth_callback"
    assert found.socket == home.path / "hub" / "hub.sock"
    assert "from a file" not in repr(found)
    server = {**told, "JUPYTERHUB_API_TOKEN": "a server's", "JUPYTERHUB_SERVICE_PREFIX": "/user/ada/"}
    assert HubConfig.from_environment(server, home) is None
    assert HubConfig.from_environment({}, home) is None
    for wrong in ({"GPUPOOL_TOKEN_FILE": "/nonexistent"}, {"JUPYTERHUB_SERVICE_NAME": "gpupool"}):
        with pytest.raises(PoolError, match="token"):
            HubConfig.from_environment({**told, **wrong}, home)


def test_why_a_pool_cannot_be_served_is_said_once_and_only_if_it_is_known(home: Home) -> None:
    hint = "Set GPUPOOL_HUB_SOCKET to a shorter one."
    assert why_not(Refused("invalid_option", "Too long.", hint=hint), home) == f"Too long. {hint}"
    full = OSError(errno.ENOSPC, "No space left on device", "/pool/x")
    assert why_not(full, home) == "/pool/x cannot be used: No space left on device."
    assert why_not(OSError("odd"), home) == f"{home.path} cannot be used: odd."
    assert why_not(ValueError("a bug"), home) is None


def test_root_is_refused_unless_it_is_meant(home: Home) -> None:
    config = ServiceConfig(home, hub=HUB)
    assert unsafe_account(config, 1000) is None
    assert "--allow-root" in (unsafe_account(config, 0) or "")
    assert unsafe_account(ServiceConfig(home, hub=HUB, allow_root=True), 0) is None


def test_work_as_users_takes_a_launcher_of_root(home: Home) -> None:
    from jupyter_gpupool.policy.load import load_policy

    users = load_policy(GOOD.replace("run_as: service", "run_as: user"))
    config = ServiceConfig(home, hub=HUB)
    assert unsafe_launcher(config, users, root=True) is None
    assert "GPUPOOL_LAUNCHER" in (unsafe_launcher(config, users, root=False) or "")
    assert unsafe_launcher(config, load_policy(GOOD), root=False) is None
    assert unsafe_launcher(ServiceConfig(home), users, root=False) is None
    (problem,) = unsafe_policy(config, 1000, users)
    assert "root" in problem.message
    for safe in (
        (config, 0),
        (ServiceConfig(home, hub=HUB, launcher=Path("/x")), 1000),
        (ServiceConfig(home), 1000),
    ):
        assert unsafe_policy(*safe, users) == []
