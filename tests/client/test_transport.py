"""Connections: kept alive, repeated only where that is safe, and never to somebody else's socket."""

from __future__ import annotations

import http.client
import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client import peers
from jupyter_gpupool.client.address import UnixAddress, parse
from jupyter_gpupool.client.errors import PoolError, Refused, ServiceDown
from jupyter_gpupool.client.transport import PAUSES, Connection


def test_requests_share_one_connection(service, connection):
    for _ in range(3):
        assert connection.request("GET", "whoami").status == 200
    assert [call.connection for call in service.calls] == [1, 1, 1]
    assert service.calls[0].path == "/services/gpupool/api/v1/whoami"
    assert connection.request("GET", "/services/gpupool/health").status == 200
    assert service.calls[-1].path == "/services/gpupool/health"


def test_each_thread_has_its_own_connection(service, connection):
    connection.request("GET", "whoami")
    thread = threading.Thread(target=connection.request, args=("GET", "whoami"))
    thread.start()
    thread.join()
    assert service.connections == 2


def test_a_forked_child_does_not_use_its_parents_connection(service, connection):
    connection.request("GET", "whoami")
    child = os.fork()
    if child == 0:
        os._exit(0 if connection.request("GET", "whoami").status == 200 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    connection.request("GET", "whoami")
    assert [call.connection for call in service.calls] == [1, 2, 1]


def test_ctrl_c_while_an_answer_is_closed_is_not_lost(service, connection, monkeypatch):
    close, presses = http.client.HTTPResponse.close, iter([KeyboardInterrupt])

    def pressed(response: http.client.HTTPResponse) -> None:
        close(response)
        for press in presses:
            raise press

    def ask_twice() -> None:
        connection.request("GET", "whoami")
        connection.request("GET", "whoami")

    monkeypatch.setattr(http.client.HTTPResponse, "close", pressed)
    with pytest.raises(KeyboardInterrupt):
        ask_twice()


def test_a_connection_closed_in_between_is_opened_again_even_for_what_must_not_repeat(service, connection):
    service.answer = lambda call: service.reply({}, headers={"Connection": "close"})
    connection.request("GET", "whoami")
    assert connection.request("POST", "jobs/1/requeue", b"{}").status == 200
    assert len(service.calls) == 2


@pytest.mark.parametrize(
    ("method", "headers", "tries"),
    [("GET", {}, 3), ("PUT", {}, 3), ("POST", {"Idempotency-Key": "k"}, 3), ("POST", {}, 1)],
)
def test_only_what_may_arrive_twice_is_sent_again(service, connection, naps, method, headers, tries):
    service.answer = lambda call: service.reply(drop=len(service.calls) < 3)
    if tries == 1:
        with pytest.raises(ServiceDown):
            connection.request(method, "jobs", b"{}", headers)
    else:
        assert connection.request(method, "jobs", b"{}", headers).status == 200
    assert len(service.calls) == tries
    assert naps == list(PAUSES[: tries - 1])


def test_a_service_that_is_down_is_one_line_after_retries(folder, naps):
    connection = Connection(f"unix:{folder / 'service.sock'}", sleep=naps.append)
    with pytest.raises(ServiceDown) as caught:
        connection.request("POST", "jobs", b"{}")
    assert naps == list(PAUSES)
    assert str(caught.value) == (
        f"The pool's service at unix:{folder}/service.sock does not answer: No such file or directory. "
        "Start it with: jupyter gpupool serve"
    )


def test_a_dead_services_socket_is_refused_and_revived(service, folder, naps):
    dead = folder / "dead.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(dead))

    def revive() -> None:
        dead.unlink()
        dead.symlink_to(service.path)

    assert Connection(f"unix:{dead}", revive=revive, sleep=naps.append).request("GET", "whoami").status == 200
    assert naps == [0.0]


def test_a_slow_answer_ends_in_a_sentence_and_is_never_taken_for_the_next_one(service, connection):
    release = threading.Event()

    def answer(call):
        if call.path.endswith("slow"):
            release.wait(10)
        return service.reply(call.path.encode())

    service.answer = answer
    connection.request("GET", "quick")
    with pytest.raises(ServiceDown, match=r"gave no answer in 0\.05 s"):
        connection.request("GET", "slow", timeout=0.05)
    release.set()
    assert connection.request("GET", "next").body.endswith(b"/next")


def test_a_socket_in_a_folder_that_others_can_write_is_refused(service, folder):
    folder.chmod(0o770)
    with pytest.raises(
        Refused, match=r"Others can write to the folder .* \(mode 0770\)\. Close it with: chmod go-w"
    ):
        Connection(service.url).request("GET", "whoami")
    assert service.calls == []


def test_a_socket_served_by_another_user_is_refused(service, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(peers, "check_private", lambda path: None)

    class Peer(socket.socket):
        def getsockopt(self, *arguments):
            return struct.pack("3i", 1, 4712, 4712)

    monkeypatch.setattr(peers.socket, "socket", Peer)
    with pytest.raises(Refused, match=r"is served by uid 4712, not by you \(uid 4711\); nothing was sent"):
        Connection(service.url).request("GET", "whoami")
    assert service.calls == []


def test_the_kernel_says_who_listens(service):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(service.path))
        peers.check_peer(sock, str(service.path), {os.geteuid()})


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://pool.example/services/gpupool", "plain http would show your token"),
        ("unix:run/service.sock", "must be absolute"),
        ("unix:/run/hub.sock?uid=", "after uid= comes the number"),
        ("unix:/run/hub.sock?uid=-1", "after uid= comes the number"),
        ("unix:/run/hub.sock?uid=gpupool", "after uid= comes the number"),
        ("https://host:port", "is not an address"),
        ("ftp://localhost", "is not an address"),
        ("nonsense", "is not an address"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(url, problem):
    with pytest.raises(Refused, match=problem):
        Connection(url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://[::1]:8000/x", "https://hub.example/services/gpupool"]
)
def test_addresses_that_can_be_used(url):
    assert Connection(url).url == url


def test_a_sockets_address_may_name_the_account_that_serves_it():
    assert parse("unix:/run/hub.sock?uid=990") == UnixAddress("/run/hub.sock", 990)
    assert parse("unix:/odd?name/x.sock") == UnixAddress("/odd?name/x.sock", None)
    assert str(UnixAddress("/run/hub.sock", 990)) == "unix:/run/hub.sock?uid=990"
    assert str(UnixAddress("/run/hub.sock", None)) == "unix:/run/hub.sock"


def test_who_can_bring_a_service_back_is_said(folder):
    own = Connection(f"unix:{folder}/x.sock", pauses=())
    with pytest.raises(ServiceDown, match="Start it with: jupyter gpupool serve"):
        own.request("GET", "whoami")
    with pytest.raises(ServiceDown, match="Your Hub's administrator runs it"):
        Connection(f"{own.url}?uid=0", pauses=()).request("GET", "whoami")


def test_a_token_goes_along_only_where_one_was_given(service):
    Connection(service.url).request("GET", "whoami")
    Connection(service.url, token="t0ken").request("GET", "whoami")
    assert "Authorization" not in service.calls[0].headers
    assert service.calls[1].headers["Authorization"] == "token t0ken"


@pytest.mark.parametrize(
    ("version", "notes"),
    [
        (None, []),
        (__version__, []),
        (f"{__version__}.post1", []),
        ("99.1.0", [f"The pool's service is of version 99.1.0, and this is {__version__}."]),
    ],
)
def test_a_service_of_another_minor_version_is_noted_once(service, version, notes):
    said = []
    headers = {"X-Gpupool-Version": version} if version else {}
    service.answer = lambda call: service.reply({}, headers=headers)
    connection = Connection(service.url, note=said.append)
    for _ in range(2):
        assert connection.request("GET", "whoami").status == 200
    with connection.stream("events"):
        assert said == notes


def test_errors_carry_all_fields_of_the_reply():
    body = (
        b'{"error": {"code": "exceeds_limit", "message": "Too much.", "used": 3, "limit": 2, '
        b'"unit": "GPU", "hint": "Wait."}}'
    )
    error = PoolError.from_reply(422, body)
    assert str(error) == "Too much. Wait."
    assert error.as_dict() == {
        "code": "exceeds_limit",
        "message": "Too much.",
        "used": 3,
        "limit": 2,
        "unit": "GPU",
        "retry_at": None,
        "hint": "Wait.",
    }
    for odd in (b"", b"<html>", b"[]", b'{"error": 1}'):
        assert str(PoolError.from_reply(500, odd)) == "The pool's service answered with HTTP status 500."
    assert str(PoolError.from_reply(503, b"<html>")) == (
        "The pool's service does not answer. Your Hub's administrator runs it."
    )


def test_home_uses_a_private_folder_for_sockets_when_paths_are_long(tmp_path: Path):
    from jupyter_gpupool.client.home import MAX_SOCKET_PATH, Home

    short, long = Home(tmp_path / "h"), Home(tmp_path / ("h" * 100))
    assert short.service_socket == tmp_path / "h" / "run" / "service.sock"
    assert long.sockets.parent == Path("/tmp")
    assert long.sockets.name.startswith(f"gpupool-{os.geteuid()}-")
    assert len(str(long.service_socket)) <= MAX_SOCKET_PATH
    assert long.run == long.path / "run"
    try:
        long.make()
        assert long.sockets.stat().st_mode & 0o777 == 0o700
    finally:
        long.sockets.rmdir()


def test_home_follows_the_environment(tmp_path: Path):
    from jupyter_gpupool.client.home import Home

    assert Home.of({"GPUPOOL_HOME": "/x/../y"}).path == Path("/y")
    assert Home.of({"XDG_STATE_HOME": "/state"}).path == Path("/state/gpupool")
    assert Home.of({}).path == Path.home() / ".local" / "state" / "gpupool"
