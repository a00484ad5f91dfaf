"""A pool as an administrator sets it up, for real accounts: root's launcher, the service, a Hub's tokens."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import stat
import subprocess
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nbformat
import pytest

from jupyter_gpupool.client import request
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.request import Here, Prepared

POLICY = """
partitions: {all: {gpus: ["*:*"], for: [job]}}
groups: {people: {quota: {gpus: 4}}}
run_as: user
"""
SCOPES = ["access:services!service=gpupool", "custom:gpupool:submit"]
WHO = """
import json, os
def look(folder):
    try:
        return os.listdir(folder)
    except PermissionError:
        return "closed"
found = {"uid": os.getresuid(), "gid": os.getresgid(), "groups": sorted(os.getgroups()),
         "home": os.environ["HOME"], "here": os.getcwd(), "colleague": look(os.environ["COLLEAGUE"])}
with open(os.path.join(os.environ["GPUPOOL_OUT_DIR"], "who.json"), "w") as file:
    json.dump(found, file)
with open(os.environ["GPUPOOL_JOB_ID"] + ".mine", "w") as file:
    file.write("mine")
print("done as", os.environ["USER"], flush=True)
"""
REPORT = """
import json, os, time
from jupyter_gpupool.client.transport import Connection
pool = Connection(os.environ["GPUPOOL_URL"], token=os.environ["GPUPOOL_TOKEN"], pauses=())
job = "jobs/" + os.environ["GPUPOOL_JOB_ID"]
print(os.environ["GPUPOOL_TOKEN"], flush=True)
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.02)
body = json.dumps({"fraction": 0.5}).encode()
print(pool.request("POST", job + "/progress", body).status, pool.request("GET", job).status, flush=True)
time.sleep(100)
"""


class FakeHub:
    """As much of a Hub as a service asks: whose token this is."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.port = 0
        self.open()

    def open(self) -> None:
        tokens = self.tokens

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                token = self.headers.get("Authorization", "").rpartition(" ")[2]
                user = {"kind": "user", "name": tokens.get(token), "groups": ["people"], "scopes": SCOPES}
                known = self.path.endswith("/hub/api/user") and token in tokens
                self.send_response(200 if known else 403)
                self.end_headers()
                self.wfile.write(json.dumps(user if known else {}).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Answers)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Site:
    """The whole pool; `person(name)` is a user who calls it with a token of the Hub."""

    def __init__(self, folder: Path, python: Path, service: Any, caller: Any):
        self.home, self.launcher = Home(folder / "service"), folder / "launcher"
        self.hub = FakeHub()
        self._account, self._caller, self._python, self._log = service, caller, python, folder / "test.log"
        self.home.path.mkdir(mode=0o711)
        (self.home.path / "policy.yaml").write_text(POLICY)
        self.home.path.joinpath("policy.yaml").chmod(0o644)
        os.chown(self.home.path, service.uid, service.gid)
        self._processes: list[subprocess.Popen[bytes]] = []

    def open(self) -> None:
        self._start_launcher()
        self.start_service()

    def _start_launcher(self) -> None:
        command = ["launcher", "--state", self.launcher, "--service-user", self._account.name]
        command += ["--snapshots", self.home.path / "snapshots"]
        process = self._start(command, {}, user=0)
        self._until(process, (self.launcher / "run" / "launcher.sock").exists)

    def start_service(self) -> None:
        environment = {
            "GPUPOOL_HOME": str(self.home.path),
            "GPUPOOL_LAUNCHER": str(self.launcher),
            "GPUPOOL_SIMULATE": "1x4x8GiB",
            "JUPYTERHUB_API_URL": f"http://127.0.0.1:{self.hub.port}/hub/api",
            "JUPYTERHUB_API_TOKEN": "the service's",
            "JUPYTERHUB_SERVICE_NAME": "gpupool",
            "GPUPOOL_HUB_AUTHENTICATOR": "PAMAuthenticator",
        }
        process = self._start(["serve"], environment, user=self._account.uid)
        self.hub.tokens["probe"] = "nobody"
        self._until(process, lambda: self._answers(self.call("probe")))

    def _start(self, command: list[Any], environment: dict[str, str], user: int) -> subprocess.Popen[bytes]:
        with open(self._log, "ab") as log:
            process = subprocess.Popen(
                [self._python, "-m", "jupyter_gpupool.app", *command],
                env={"PATH": "/usr/bin:/bin", **environment},
                cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                user=user, group=self._account.gid if user else 0, extra_groups=[],
            )  # fmt: skip
        self._processes.append(process)
        return process

    def _until(self, process: subprocess.Popen[bytes], ready: Any) -> None:
        give_up = time.monotonic() + 30
        while not ready():
            said = self._log.read_text()
            assert process.poll() is None, said
            assert time.monotonic() < give_up, said
            time.sleep(0.05)

    @staticmethod
    def _answers(call: Any) -> bool:
        with contextlib.suppress(Exception):
            return call("GET", "whoami").status == 200
        return False

    def call(self, token: str) -> Any:
        url = f"unix:{self.home.path}/hub/hub.sock?uid={self._account.uid}"
        return self._caller(self.home, url=url, token=token)

    def person(self, name: str) -> Any:
        self.hub.tokens[f"token of {name}".replace(" ", "-")] = name
        return self.call(f"token of {name}".replace(" ", "-"))

    def kill_service(self) -> None:
        service = self._processes.pop()
        service.kill()
        service.wait()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(20)
        self.hub.close()


@pytest.fixture(scope="module")
def site(accounts: Any, readable_python: Path, caller: Any) -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="gpupool-site-", dir="/var/tmp"))
    folder.chmod(0o755)
    site = Site(folder, readable_python, accounts.service, caller)
    try:
        site.open()
        yield site
        for name in (accounts.ada.name, accounts.bob.name):
            person = site.person(name)
            for job in person("GET", "jobs").body["jobs"]:
                person("POST", f"jobs/{job['id']}/cancel")
                person.wait(job["id"])
    finally:
        site.close()
        shutil.rmtree(folder)


@pytest.fixture
def ada(site: Site, accounts: Any) -> Any:
    return site.person(accounts.ada.name)


@pytest.fixture
def bob(site: Site, accounts: Any) -> Any:
    return site.person(accounts.bob.name)


@pytest.fixture(scope="module")
def closed(accounts: Any) -> Path:
    """A folder of bob's that is closed to everybody else."""
    folder = Path(accounts.bob.home) / "private"
    folder.mkdir(mode=0o700)
    (folder / "secret").write_text("bob's secret")
    for path in (folder / "secret", folder):
        os.chown(path, accounts.bob.uid, accounts.bob.gid)
    return folder


@pytest.fixture
def here(accounts: Any, closed: Path) -> Here:
    """A folder of ada's, as she would submit from it."""
    folder = Path(tempfile.mkdtemp(prefix="work-", dir=accounts.ada.home))
    os.chown(folder, accounts.ada.uid, accounts.ada.gid)
    return Here(environ={"PATH": "/usr/bin:/bin", "COLLEAGUE": str(closed)}, cwd=folder)


def prepare(kind: str, here: Here, python: Path) -> Prepared:
    common = {"time": "10m", "cpus": "1", "mem": "1GiB"}
    options = common | {"python": str(python)}
    match kind:
        case "script":
            (here.cwd / "who.py").write_text(WHO)
            return request.prepare_script("who.py", [], options, here)
        case "cell":
            return request.prepare_cell(WHO, {}, options, here)
        case "function":

            def tell(source: str) -> str:
                exec(source, {})
                return "told"

            return request.prepare_function(tell, (WHO,), {}, options, here)
        case "notebook":
            notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WHO)])
            nbformat.write(notebook, here.cwd / "who.ipynb")
            return request.prepare_notebook("who.ipynb", common, here)
    return request.prepare_command([str(python), "-c", WHO], common, here)


def submit(person: Any, prepared: Prepared) -> dict[str, Any]:
    if prepared.snapshot:
        sent = person("PUT", f"snapshots/{prepared.snapshot.sha256}", prepared.snapshot.data)
        assert sent.status == 201, sent
    answer = person("POST", "jobs", prepared.body)
    assert answer.status == 201, answer
    return answer.body


def artifact(person: Any, id: int, name: str) -> bytes:
    answer = person("GET", f"jobs/{id}/artifacts/{name}")
    assert answer.status == 200, answer
    return answer.body


@pytest.mark.parametrize("kind", ["script", "cell", "function", "notebook", "command"])
def test_every_kind_of_work_is_its_users(
    kind: str, site: Site, ada: Any, accounts: Any, here: Here, readable_python: Path
) -> None:
    job = ada.wait(submit(ada, prepare(kind, here, readable_python))["id"], patience=60)
    assert job["state"] == "completed", ada.log(job["id"])
    account = accounts.ada
    assert json.loads(artifact(ada, job["id"], "who.json")) == {
        "uid": [account.uid] * 3,
        "gid": [account.gid] * 3,
        "groups": sorted(account.groups),
        "home": account.home,
        "here": str(here.cwd),
        "colleague": "closed",
    }
    mine = here.cwd / f"{job['id']}.mine"
    assert (mine.stat().st_uid, mine.stat().st_gid) == (account.uid, account.gid)
    if kind == "notebook":
        assert "done as" in artifact(ada, job["id"], "who.ipynb").decode()
    else:
        assert f"done as {account.name}" in ada.log(job["id"]).decode()
    if kind == "function":
        assert pickle.loads(artifact(ada, job["id"], "result.pkl")) == "told"
    for path, mode in ((Path(job["out"]), 0o700), (Path(job["log"]), 0o600)):
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (account.uid, mode)
        assert path.is_relative_to(site.launcher / "jobs")


def test_the_log_is_followed_while_the_job_runs(ada: Any) -> None:
    job = ada.submit("echo one; while [ ! -e $GPUPOOL_OUT_DIR/go ]; do sleep 0.05; done; echo two; exit 3")
    first = ada("GET", f"jobs/{job['id']}/logs?wait=20")
    assert (first.body, first.headers["x-gpupool-ended"]) == (b"one\n", "false")
    ada.wait(job["id"], "running")
    (Path(ada.job(job["id"])["out"]) / "go").touch()
    rest = ada("GET", f"jobs/{job['id']}/logs?wait=20&offset={first.headers['x-gpupool-offset']}")
    assert rest.body == b"two\n"
    ended = ada.wait(job["id"])
    assert (ended["state"], ended["exit_code"]) == ("failed", 3)
    assert ended["diagnosis"]["lines"][-1] == "two"


def test_it_says_how_far_it_is_and_is_told_to_stop_in_any_python(ada: Any) -> None:
    code = """
        import time, gpupool_job
        gpupool_job.progress(0.25, loss=0.5)
        gpupool_job.should_stop()
        print("up", flush=True)
        while not gpupool_job.should_stop():
            time.sleep(0.02)
        print("saved", flush=True)
    """
    argv = ["/usr/bin/env", "python3", "-c", textwrap.dedent(code)]
    job = ada("POST", "jobs", ada.command(entry={"argv": argv}, grace="20s")).body
    assert ada("GET", f"jobs/{job['id']}/logs?wait=20").body == b"up\n"
    shown = ada.wait(job["id"], "running")["progress"]
    assert (shown["fraction"], shown["values"]) == (0.25, {"loss": 0.5})
    ada("POST", f"jobs/{job['id']}/cancel")
    assert ada.wait(job["id"])["state"] == "completed"
    assert ada.log(job["id"]) == b"up\nsaved\n"


def test_what_one_run_has_saved_is_the_next_ones(ada: Any) -> None:
    shell = "cd $GPUPOOL_CHECKPOINT_DIR; [ -e saved ] && exec cat saved; id -u > saved; echo up; sleep 100"
    job = ada.submit(shell, resumable=True)
    assert ada("GET", f"jobs/{job['id']}/logs?wait=20").body == b"up\n"
    ada.wait(job["id"], "running")
    ada("POST", f"jobs/{job['id']}/requeue")
    ended = ada.wait(job["id"], patience=40)
    assert (ended["state"], ended["attempt"]) == ("completed", 2)
    uid = Path(ended["out"]).stat().st_uid
    assert ada.log(job["id"]).decode() == f"{uid}\n"


def test_it_outlives_the_service(site: Site, ada: Any) -> None:
    job = ada.submit("echo up; while [ ! -e $GPUPOOL_OUT_DIR/go ]; do sleep 0.05; done; echo down; exit 5")
    ada("GET", f"jobs/{job['id']}/logs?wait=20")
    out = Path(ada.wait(job["id"], "running")["out"])
    site.kill_service()
    (out / "go").touch()
    site.start_service()
    ended = ada.wait(job["id"])
    assert (ended["state"], ended["exit_code"], ended["attempt"]) == ("failed", 5, 1)
    assert ada.log(job["id"]) == b"up\ndown\n"


def test_nothing_of_another_user_is_there(ada: Any, bob: Any) -> None:
    job = ada.submit("echo mine; echo mine > $GPUPOOL_OUT_DIR/file")
    ada.wait(job["id"])
    assert artifact(ada, job["id"], "file") == b"mine\n"
    for path in ("logs", "artifacts", "artifacts/file"):
        answer = bob("GET", f"jobs/{job['id']}/{path}")
        assert (answer.status, answer.error["code"]) == (404, "not_found")
    shown = bob.job(job["id"])
    assert [shown[name] for name in ("folder", "out", "log", "workdir", "progress", "diagnosis")] == [
        None
    ] * 6


def test_another_users_snapshot_is_no_snapshot(ada: Any, bob: Any) -> None:
    digest = ada.upload({"t.py": "print('secret code')"})
    assert ada("HEAD", f"snapshots/{digest}").status == 200
    assert bob("HEAD", f"snapshots/{digest}").status == 404
    body = bob.command(kind="script", entry={"script": "t.py"}, snapshot=digest)
    answer = bob("POST", "jobs", body)
    assert (answer.status, answer.error["code"]) == (409, "snapshot_missing")


def test_a_link_among_the_results_leads_nowhere(ada: Any, closed: Path) -> None:
    script = f"""
        cd $GPUPOOL_OUT_DIR
        echo plain > plain
        ln -s {closed}/secret secret
        ln -s /etc/shadow shadow
        ln -s .. up
        mkfifo fifo
        ln {closed}/secret hard || true
        ln /etc/passwd passwd || true
    """
    job = ada.submit(textwrap.dedent(script))
    assert ada.wait(job["id"])["state"] == "completed", ada.log(job["id"])
    listed = ada("GET", f"jobs/{job['id']}/artifacts").body["artifacts"]
    assert [file["name"] for file in listed] == ["plain"]
    for name in ("secret", "shadow", "up", "fifo", "hard", "passwd"):
        assert ada("GET", f"jobs/{job['id']}/artifacts/{name}").status == 404, name


def test_a_whole_folder_of_results_that_is_a_link_is_empty(ada: Any, closed: Path) -> None:
    job = ada.submit(f"rmdir $GPUPOOL_OUT_DIR && ln -s {closed} $GPUPOOL_OUT_DIR; true")
    ada.wait(job["id"])
    assert ada("GET", f"jobs/{job['id']}/artifacts").body["artifacts"] == []
    assert ada("GET", f"jobs/{job['id']}/artifacts/secret").status == 404


@pytest.mark.parametrize(
    ("name", "part"), [("nobody-of-that-name", "no account"), ("root", "root's"), ("daemon", "system's")]
)
def test_a_name_that_is_no_account_is_told_at_submit(site: Site, name: str, part: str) -> None:
    person = site.person(name)
    answer = person("POST", "jobs", person.command())
    assert (answer.status, answer.error["code"]) == (422, "no_account")
    assert part in answer.error["message"]
    assert person("GET", "jobs").body["jobs"] == []


def test_a_jobs_token_outlives_the_hub_and_ends_with_its_run(
    site: Site, ada: Any, here: Here, readable_python: Path
) -> None:
    go = here.cwd / "go"
    body = ada.command(entry={"argv": [str(readable_python), "-c", REPORT]})
    body["environment"] = body["environment"] | {"GO": str(go)}
    job = ada("POST", "jobs", body).body
    ada.wait(job["id"], "running")
    first = ada("GET", f"jobs/{job['id']}/logs?wait=20")
    with_token = site.call(first.body.decode().strip())
    site.hub.close()
    go.touch()
    offset = first.headers["x-gpupool-offset"]
    give_up = time.monotonic() + 20
    while with_token("GET", f"jobs/{job['id']}").body["progress"] is None:
        assert time.monotonic() < give_up
        time.sleep(0.02)
    assert with_token("GET", f"jobs/{job['id']}/logs").status == 403
    site.hub.open()
    assert ada("GET", f"jobs/{job['id']}/logs?wait=20&offset={offset}").body == b"200 200\n"
    assert ada.job(job["id"])["progress"]["fraction"] == 0.5
    ada("POST", f"jobs/{job['id']}/cancel")
    ada.wait(job["id"])
    assert with_token("GET", f"jobs/{job['id']}").status == 401
