"""Logging in from a terminal, to a real JupyterHub."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from jupyter_gpupool import app
from jupyter_gpupool.client import logins
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.find import find_pool, place
from jupyter_gpupool.client.hub import hub_address
from jupyter_gpupool.client.logins import Login
from tests.faces.unix import PortService

CONFIGURATION = Path(__file__).with_name("login_hub.py")
MAX_SECONDS = 3600  # shorter than a login would last
LOGIN = Login("https://x/services/gpupool", "https://x", "ada", "t0ken", "2030-01-31T08:00:00.5Z")


class Hub(NamedTuple):
    """A running Hub."""

    url: str

    def api(self, method: str, path: str, token: str | None = None, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(f"{self.url}/hub/api/{path}", method=method)
        if token:
            request.add_header("Authorization", f"token {token}")
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=20) as reply:
                return reply.status, json.loads(reply.read() or "null")
        except urllib.error.HTTPError as refusal:
            return refusal.code, None

    def token(self, user: str, **fields: Any) -> str:
        """Make a token as the page ``/hub/token`` does, after a login with a password."""
        body = {"auth": {"username": user, "password": "x"}, **fields}
        status, made = self.api("POST", f"users/{quote(user)}/tokens", body=body)
        assert status in (200, 201)
        return str(made["token"])

    def notes(self, token: str, user: str = "ada") -> list[str]:
        return [
            found["note"] for found in self.api("GET", f"users/{quote(user)}/tokens", token)[1]["api_tokens"]
        ]


def where_programs_are() -> str:
    own = Path(sys.prefix, "proxy", "node_modules", ".bin")
    return f"{Path(sys.executable).parent}:{own}:{os.environ['PATH']}"


@pytest.fixture
def hub(require, request: pytest.FixtureRequest) -> Hub:
    for program in ("configurable-http-proxy", "jupyterhub"):
        if shutil.which(program, path=where_programs_are()) is None:
            require(f"{program} is not installed (see .ci/run)")
    return request.getfixturevalue("running_hub")


@pytest.fixture(scope="module")
def running_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        ports = [sock.getsockname()[1] for sock in free]
    folder = tmp_path_factory.mktemp("hub")
    environ = {
        "PATH": where_programs_are(),
        "HOME": str(folder),
        "PORTS": ",".join(map(str, ports)),
        "MAX_SECONDS": str(MAX_SECONDS),
    }
    log = folder / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(CONFIGURATION)],
            cwd=folder,
            env=environ,
            stdout=output,
            stderr=output,
        )
    try:
        found = Hub(f"http://127.0.0.1:{ports[0]}/base")
        wait_for(lambda: "JupyterHub is now running" in log.read_text(), process, log)
        yield found
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


def wait_for(done: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


@pytest.fixture
def login(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Return a function that runs ``jupyter gpupool`` with something piped in: its code and all it said."""

    def run(*words: str, pasted: str = "") -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(pasted + "\n"))
        code = app.main(words)
        said = capsys.readouterr()
        assert not pasted or pasted not in said.out + said.err
        return code, said.out + said.err

    return run


def test_a_pasted_token_becomes_one_that_is_good_for_the_pool_alone_and_expires(hub, login):
    pasted = hub.token("ada")
    code, said = login("login", f"{hub.url}/hub/home", pasted=pasted)
    assert code == 0, said
    kept = logins.stored(os.environ)
    assert said == (
        f"Logged in at {hub.url} as ada, until {kept.expires_at}; the token that you pasted is not needed "
        f"any more: you can revoke it at {hub.url}/hub/token.\n"
    )
    assert kept.token != pasted
    assert logins.login_file(os.environ).stat().st_mode & 0o777 == 0o600
    ends = datetime.fromisoformat(kept.expires_at)
    assert timedelta() < ends - datetime.now(UTC) <= timedelta(seconds=MAX_SECONDS)
    who = Client(find_pool(os.environ)).whoami()
    assert who["user"] == "ada"
    assert {"access:services!service=gpupool", "custom:gpupool:submit"} <= set(who["scopes"])
    assert hub.api("GET", "users/ada/tokens", kept.token)[0] in (403, 404)  # good for nothing else
    assert any(note.startswith("jupyter gpupool login on ") for note in hub.notes(pasted))


def test_a_token_that_may_make_none_is_kept_itself(hub, login):
    pasted = hub.token("ada", scopes=["access:services!service=gpupool"])
    code, said = login("login", hub.url, "--json", pasted=pasted)
    assert code == 0, said
    answer = json.loads(said)
    assert (answer["user"], answer["expires_at"], answer["narrowed"]) == ("ada", None, False)
    assert logins.stored(os.environ).token == pasted
    code, said = login("logout")
    assert code == 0
    assert said == (
        "Logged out: the token is removed from here. To make it void everywhere, revoke it at "
        f"{hub.url}/hub/token.\n"
    )
    assert place(os.environ).home is not None
    assert login("logout") == (0, "You were not logged in.\n")


@pytest.mark.parametrize(
    ("user", "sentence"), [("eve smith", "Not in this pool.\n"), ("bob", "Not for bob today.\n")]
)
def test_where_the_pool_refuses_its_sentence_is_shown_and_no_token_is_left(hub, login, user, sentence):
    pasted = hub.token(user)
    before = hub.notes(pasted, user)
    assert login("login", hub.url, pasted=pasted) == (1, sentence)
    assert logins.stored(os.environ) is None
    assert hub.notes(pasted, user) == before


@pytest.mark.parametrize(
    ("pasted", "words"),
    [("0123456789", "does not know this token"), ("", "This is no token"), ("a\tb é", "This is no token")],
)
def test_what_is_no_token_of_the_hubs_is_one_sentence(hub, login, pasted, words):
    code, said = login("login", hub.url, pasted=pasted)
    assert code == 1
    assert words in said
    assert said.count("\n") == 1
    assert logins.stored(os.environ) is None


def test_an_environment_that_names_another_pool_is_mentioned(hub, login, monkeypatch):
    monkeypatch.setenv("GPUPOOL_URL", "unix:/elsewhere/service.sock")
    code, said = login("login", hub.url, pasted=hub.token("ada"))
    assert code == 0
    assert "names another pool, which comes first: unix:/elsewhere/service.sock." in said


def test_what_answers_there_is_no_hub_or_nothing_answers(login):
    other = PortService()
    code, said = login("login", f"http://localhost:{other.port}", pasted="t0ken")
    assert (code, said) == (
        1,
        f"There is no JupyterHub at http://localhost:{other.port} (HTTP status 200).\n",
    )
    other.end()
    code, said = login("login", f"http://localhost:{other.port}", pasted="t0ken")
    assert code == 1
    assert f"The Hub at http://localhost:{other.port} does not answer" in said


# -- without a Hub -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("https://hub.example", "https://hub.example"),
        ("https://hub.example/hub/token?x=1#y", "https://hub.example"),
        ("https://ada:pw@hub.example:8443/a/b/user/ada/lab/tree/hub", "https://hub.example:8443/a/b"),
        ("https://hub.example/base/services/gpupool", "https://hub.example/base"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
    ],
)
def test_any_address_of_a_hub_will_do(typed, address):
    assert hub_address(typed) == address


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("http://hub.example", "plain http would show your token"),
        ("unix:/run/hub.sock", "is not the address of a JupyterHub"),
        ("hub.example", "is not an address"),
        ("https://hub.example:port", "is not an address"),
    ],
)
def test_addresses_to_which_no_token_goes(typed, words):
    with pytest.raises(Refused, match=words):
        hub_address(typed)


def test_a_login_goes_to_its_own_address_alone_and_what_the_environment_names_comes_first():
    logins.store(LOGIN, os.environ)
    environ = dict(os.environ)
    assert (place(environ).url, place(environ).token) == (LOGIN.url, "t0ken")
    assert place({**environ, "GPUPOOL_URL": LOGIN.url}).token == "t0ken"
    elsewhere = place({**environ, "GPUPOOL_URL": "https://elsewhere/services/gpupool"})
    assert elsewhere.token is None
    assert place({**environ, "GPUPOOL_SIMULATE": "1x1x8GiB"}).home is not None
    hub = {**environ, "GPUPOOL_HUB_URL": "unix:/hub.sock?uid=9", "JUPYTERHUB_API_TOKEN": "hubs"}
    assert (place(hub).url, place(hub).token) == ("unix:/hub.sock?uid=9", "hubs")
    job = {**environ, "GPUPOOL_URL": "unix:/hub.sock?uid=9", "GPUPOOL_TOKEN": "gpj_1"}
    assert place(job).token == "gpj_1"
    assert "t0ken" not in repr(place(environ)) + repr(logins.stored(environ))


def test_a_login_that_has_ended_says_so():
    logins.store(replace(LOGIN, expires_at="2020-01-31T08:00:00Z"), os.environ)
    with pytest.raises(Refused, match=r"ended at 2020-01-31.*Log in again: jupyter gpupool login https://x"):
        find_pool(os.environ)
    before, after = (datetime(2030, 1, 31, 8, 0, second, tzinfo=UTC) for second in (0, 1))
    with pytest.raises(Refused):
        LOGIN.valid_token(after)
    assert replace(LOGIN, expires_at="2030-01-31T08:00:01Z").valid_token(before) == "t0ken"
    assert replace(LOGIN, expires_at=None).valid_token(after) == "t0ken"


def test_a_login_that_others_can_read_or_nobody_is_refused(login):
    path = logins.store(LOGIN, os.environ)
    path.chmod(0o640)
    with pytest.raises(Refused, match=r"Others can read your login .* \(mode 0640\)\. Revoke the token"):
        place(os.environ)
    for text in ("", "[]", "{}", '{"url": 1}', path.read_text().replace("2030", "soon")):
        path.write_text(text)
        path.chmod(0o600)
        with pytest.raises(Refused, match="cannot be read"):
            place(os.environ)
    assert login("logout")[0] == 0
    assert not path.exists()
