"""No token, and no word of a job's code, to whoever sits where the service should: with real accounts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_gpupool.client import peers
from jupyter_gpupool.client.errors import Refused, ServiceDown
from jupyter_gpupool.client.find import place
from jupyter_gpupool.client.transport import Connection
from tests.faces.unix import PortService

# listens at argv[2:], tells so, and prints whatever the first client says
SQUATTER = """
import os, socket, sys
os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
if len(sys.argv) > 3:
    both = {"family": socket.AF_INET6, "dualstack_ipv6": True} if ":" in sys.argv[2] else {}
    listener = socket.create_server((sys.argv[2], int(sys.argv[3])), **both)
else:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[2])
    os.chmod(sys.argv[2], 0o666)
    listener.listen()
print("listening", flush=True)
client, _ = listener.accept()
print("heard", client.recv(65536), flush=True)
"""
HEARD_NOTHING = "heard b''\n"
HEARD_PROBE = "heard b'probe'\n"
SERVES = 54321  # uids without accounts: the kernel asks for none
EVE = 54322


@pytest.fixture(autouse=True)
def _as_root():
    if os.geteuid() != 0:
        pytest.skip("only root can act as other accounts")


@pytest.fixture
def hub(open_folder: Path) -> Path:
    """Return the folder of a service's socket as the service's account makes it: others pass, none writes."""
    folder = open_folder / "home" / "hub"
    folder.mkdir(parents=True)
    for path in (folder.parent, folder):
        path.chmod(0o755)
        os.chown(path, SERVES, SERVES)
    return folder


@contextmanager
def squatter(uid: int, *where: object) -> Iterator[Callable[[], str]]:
    """Listen somewhere as `uid`; yields a function that returns what was heard."""
    argv = [sys.executable, "-S", "-c", SQUATTER, str(uid), *map(str, where)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    try:
        yield process.stdout.readline
    finally:
        process.kill()
        process.communicate()


def hub_environ(folder: Path, owner: int = SERVES, **more: str) -> dict[str, str]:
    url = f"unix:{folder}/hub.sock?uid={owner}"
    return {"GPUPOOL_URL": url, "GPUPOOL_HUB_URL": url, "JUPYTERHUB_API_TOKEN": "t0ken", **more}


def ask(environ: dict[str, str]) -> None:
    place(environ).connection(pauses=()).request("GET", "whoami", timeout=5)


def probe(path: Path) -> None:
    """Say something to a squatter: it hears this if, and only if, nobody connected before."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(b"probe")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def test_the_account_that_the_address_names_gets_the_token(hub):
    with squatter(SERVES, hub / "hub.sock") as heard:
        with pytest.raises(ServiceDown):  # it hangs up without an answer
            ask(hub_environ(hub))
        assert "Authorization: token t0ken" in heard()


def test_a_socket_that_somebody_else_serves_gets_nothing(hub):
    hub.chmod(0o1777)  # a mistake of the administrator's that lets eve in
    with squatter(EVE, hub / "hub.sock") as heard:
        with pytest.raises(Refused, match=f"belongs to uid {EVE}; nothing was sent"):
            ask(hub_environ(hub))
        os.chown(hub / "hub.sock", SERVES, SERVES)  # even if the file looked right
        with pytest.raises(Refused, match=f"served by uid {EVE}, not by uid {SERVES}; nothing was sent"):
            ask(hub_environ(hub))
        assert heard() == HEARD_NOTHING


def test_without_a_named_account_only_ones_own_and_roots_are_trusted(hub):
    with squatter(SERVES, hub / "hub.sock") as heard:
        os.chown(hub, 0, 0)
        with pytest.raises(Refused, match=f"served by uid {SERVES}, not by you"):
            Connection(f"unix:{hub}/hub.sock", token="t0ken", pauses=()).request("GET", "whoami")
        assert heard() == HEARD_NOTHING


def test_a_folder_that_was_replaced_gets_nothing(hub):
    hub.parent.parent.chmod(0o777)  # a mistake of the administrator's
    hub.parent.rename(hub.parent.with_name("away"))
    hub.mkdir(parents=True)
    for path in (hub.parent, hub):
        os.chown(path, EVE, EVE)
    with squatter(EVE, hub / "hub.sock") as heard:
        with pytest.raises(Refused, match=r"Others can write to .*gpupool-open"):
            ask(hub_environ(hub))
        probe(hub / "hub.sock")
        assert heard() == HEARD_PROBE
    hub.parent.parent.chmod(0o755)
    with squatter(EVE, hub.parent / "hub.sock") as heard:
        with pytest.raises(Refused, match=f"/home, on the way .*belongs to uid {EVE}"):
            ask(hub_environ(hub.parent))
        probe(hub.parent / "hub.sock")
        assert heard() == HEARD_PROBE


@pytest.mark.parametrize("made_by", [SERVES, EVE])
def test_a_link_in_the_place_of_the_folder_is_followed_only_where_its_maker_is_trusted(hub, made_by):
    evil = hub.parent.parent / "evil"
    evil.mkdir()
    os.chown(evil, EVE, EVE)
    hub.rmdir()
    hub.symlink_to(evil)
    os.lchown(hub, made_by, made_by)
    with squatter(EVE, evil / "hub.sock") as heard:
        with pytest.raises(Refused, match=f"{'hub' if made_by == EVE else 'evil'}, on the way"):
            ask(hub_environ(hub))
        probe(evil / "hub.sock")
        assert heard() == HEARD_PROBE


def test_links_of_the_services_own_are_followed_and_circles_end(hub):
    other = hub.with_name("other")
    hub.rename(other)
    hub.symlink_to("../home/./other")
    os.lchown(hub, SERVES, SERVES)
    with squatter(SERVES, other / "hub.sock") as heard:
        with pytest.raises(ServiceDown):
            ask(hub_environ(hub))
        assert "t0ken" in heard()
    hub.unlink()
    hub.symlink_to(hub)
    with pytest.raises(ServiceDown, match="symbolic links"):
        ask(hub_environ(hub))


def test_the_hubs_token_goes_to_the_hubs_pool_alone(hub):
    other = hub.with_name("other")
    other.mkdir(mode=0o755)
    with squatter(0, other / "x.sock") as heard:
        with pytest.raises(ServiceDown):
            ask(hub_environ(hub, GPUPOOL_URL=f"unix:{other}/x.sock"))
        words = heard()
    assert "GET /services/gpupool" in words
    assert "Authorization" not in words


@pytest.mark.parametrize("listens_at", ["127.0.0.1", "::", "0.0.0.0"])
def test_a_port_that_somebody_took_while_the_service_was_down_gets_nothing(listens_at):
    if listens_at == "::" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    port = free_port()
    with squatter(EVE, listens_at, port) as heard:
        with pytest.raises(Refused, match=f"Port {port} .* is served by uid {EVE}, not by you"):
            Connection(f"http://127.0.0.1:{port}", token="t0ken", pauses=()).request("GET", "whoami")
        assert heard() == HEARD_NOTHING


def test_a_port_of_ones_own_is_trusted():
    service = PortService()
    try:
        for host in ("127.0.0.1", "localhost"):
            connection = Connection(f"http://{host}:{service.port}", token="t0ken", pauses=())
            assert connection.request("GET", "whoami").status == 200
        assert service.calls[0].headers["Authorization"] == "token t0ken"
    finally:
        service.end()


def test_a_stranger_who_left_the_port_to_its_owner_meanwhile_is_found():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        os.fchown(accepted.fileno(), EVE, EVE)  # as if eve had taken the connection
        with accepted, pytest.raises(Refused, match=f"served by uid {EVE}"):
            peers.check_port(client, {0})


def test_a_listener_that_cannot_be_told_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        listener.close()
        with accepted, pytest.raises(Refused, match="cannot be told"):
            peers.check_port(client, {0})
