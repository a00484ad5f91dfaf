"""Where the pool is, and starting the user's own service once, with real processes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client import find, start
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.enable import make_portable
from jupyter_gpupool.client.errors import Refused, ServiceDown
from jupyter_gpupool.client.find import check_pool, find_pool
from jupyter_gpupool.client.home import Home

STUB = Path(__file__).with_name("stub_service.py")


@pytest.fixture
def environ(tmp_path, monkeypatch):
    """Return an environment in which the service is the stub; end the stubs that were started."""
    stub = tmp_path / "python"
    stub.write_text(f"#!{sys.executable}\n{STUB.read_text()}")
    stub.chmod(0o755)
    home = tmp_path / "home"
    monkeypatch.setattr(start, "service_python", lambda home: str(stub))
    yield {
        "GPUPOOL_HOME": str(home),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "STUB_VERSION": __version__,
        "STUB_PYTHON": str(stub),
        "PATH": os.environ["PATH"],
    }
    for pid in starts(home):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def starts(home: Path | str) -> list[int]:
    try:
        return [int(line) for line in Path(home, "starts").read_text().split()]
    except FileNotFoundError:
        return []


def test_a_url_names_the_pool(service):
    connection = find_pool(
        {"GPUPOOL_URL": service.url, "GPUPOOL_SIMULATE": "1x1x1GiB", "JUPYTERHUB_API_TOKEN": "t"}
    )
    connection.request("GET", "whoami")
    assert "Authorization" not in service.calls[0].headers  # the kernel says who asks


def test_under_a_hub_a_pool_must_be_named(tmp_path):
    with pytest.raises(Refused, match="GPUPOOL_HUB_URL is not set"):
        find_pool({"JUPYTERHUB_API_TOKEN": "t", "GPUPOOL_HOME": str(tmp_path / "home")})
    assert not (tmp_path / "home").exists()


def test_the_service_starts_by_itself_once(environ):
    said = []
    pid = Client(find_pool(environ, progress=said.append)).whoami()["pid"]
    assert Client(find_pool(environ)).whoami()["pid"] == pid
    assert starts(environ["GPUPOOL_HOME"]) == [pid]
    assert os.getsid(pid) != os.getsid(0)


def test_the_service_gets_no_variables_of_the_session(environ):
    session = {"JPY_PARENT_PID": "1", "GPUPOOL_JOB_DIR": "/x", "GPUPOOL_BOOT_ID": "b", "A": "1"}
    session |= {"GPUPOOL_TOKEN": "gpj_1", "GPUPOOL_HUB_SOCKET": "/x", "JUPYTERHUB_API_URL": "http://x"}
    find_pool({**environ, **session})
    given = json.loads(Path(environ["GPUPOOL_HOME"], "environment").read_text())
    assert given["GPUPOOL_BOOT_ID"] == "b"
    assert given["A"] == "1"
    assert (session.keys() - {"GPUPOOL_BOOT_ID", "A"}).isdisjoint(given)


def test_two_labs_start_one_service(environ):
    code = (
        "import os, sys\n"
        "from jupyter_gpupool.client import start\n"
        "start.service_python = lambda home: os.environ['STUB_PYTHON']\n"
        "from jupyter_gpupool.client.api import Client\n"
        "from jupyter_gpupool.client.find import find_pool\n"
        "print(Client(find_pool()).whoami()['pid'])\n"
    )
    run = {**environ, "STUB_DELAY": "0.3", "PYTHONPATH": str(Path(find.__file__).parents[2])}
    labs = [subprocess.Popen([sys.executable, "-c", code], env=run, stdout=subprocess.PIPE) for _ in range(2)]
    pids = {lab.communicate()[0] for lab in labs}
    assert len(pids) == 1
    assert len(starts(environ["GPUPOOL_HOME"])) == 1


def test_another_version_is_asked_to_keep_its_jobs_and_replaced(environ):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "__version__", "0.0.1")
        patch.setitem(environ, "STUB_VERSION", "0.0.1")
        first = Client(find_pool(environ)).whoami()
    said = []
    second = Client(find_pool(environ, progress=said.append)).whoami()
    assert (first["version"], second["version"]) == ("0.0.1", __version__)
    assert first["pid"] != second["pid"]
    assert said[0] == f"The pool's service is of version 0.0.1; starting {__version__} instead ..."
    shutdown = Path(environ["GPUPOOL_HOME"], "shutdowns").read_text()
    assert shutdown == '/services/gpupool/api/v1/shutdown {"keep_jobs": true}'


def test_another_pool_than_asked_for_is_one_sentence(environ):
    find_pool({**environ, "GPUPOOL_SIMULATE": "4x8x32GiB"})
    find_pool({**environ, "GPUPOOL_SIMULATE": "4x8x32768MiB"})
    find_pool(environ)  # who asks for none takes what runs
    with pytest.raises(Refused) as caught:
        find_pool({**environ, "GPUPOOL_SIMULATE": "1x2x8GiB"})
    assert caught.value.message == (
        "The service that runs has the simulated pool 4x8x32GiB, and GPUPOOL_SIMULATE asks for 1x2x8GiB."
    )
    with pytest.raises(Refused, match="this machine's real cards"):
        check_pool(None, "1x2x8GiB")


def test_a_service_that_does_not_start_says_why(environ):
    with pytest.raises(ServiceDown, match=r"did not start: the ledger is on a network file system\.$"):
        find_pool({**environ, "STUB_FAIL": "the ledger is on a network file system."})
    assert starts(environ["GPUPOOL_HOME"]) == []


def test_a_service_that_went_away_starts_again_for_the_next_request(environ):
    client = Client(find_pool(environ))
    first = client.whoami()["pid"]
    os.kill(first, signal.SIGKILL)
    second = client.whoami()["pid"]
    assert starts(environ["GPUPOOL_HOME"]) == [first, second]


def test_a_home_in_which_nothing_can_be_written_is_one_sentence(environ, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(start, "locked", full)
    with pytest.raises(Refused, match=r"cannot start in .*/home: No space left on device\. .*GPUPOOL_HOME"):
        find_pool(environ)


def test_starting_the_service_needs_no_room_on_disk(environ):
    find_pool(environ)
    assert not Path(environ["GPUPOOL_HOME"], "run", "start.log").exists()


def test_a_home_that_others_can_write_is_refused(environ):
    home = Path(environ["GPUPOOL_HOME"])
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(Refused, match="Others can write to the folder"):
        find_pool(environ)


def test_the_service_runs_in_this_python_or_the_recorded_one(tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    home.make()
    assert start.service_python(home) == sys.executable
    monkeypatch.setattr(start, "NEEDED", ("no_such_module_anywhere",))
    with pytest.raises(ServiceDown, match="cannot start it"):
        start.service_python(home)
    make_portable(home, python="/no/such/python")
    with pytest.raises(ServiceDown, match="cannot start it"):
        start.service_python(home)
    make_portable(home)
    assert start.service_python(home) == sys.executable


def test_a_lock_held_for_too_long_is_an_error(tmp_path):
    home = Home(tmp_path / "home")
    home.make()
    said = []
    with (
        start.locked(home, said.append),
        pytest.raises(ServiceDown, match="Another process"),
        start.locked(home, said.append, timeout=0.0),
    ):
        pass
    with start.locked(home, said.append, timeout=0.0):
        pass
