"""The demo of one person: a JupyterLab with a pool of its own.

Owns: the two processes it starts (service and Lab) and their end. Never: schedules, or reads the ledger; it
is a user of the product like any other.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jupyter_gpupool import client
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.phrases import counts_text
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.commands.demo import files
from jupyter_gpupool.commands.demo.processes import (
    END_TIMEOUT_S,
    choose_port,
    environment,
    running,
    say,
    serves,
    until_interrupted,
)

FIRST_PORT = 8888
WELCOME = """
{title}

  Open   {url}

  In the notebook, run the cells from the top: they submit a training run, show the
  queue, and fetch the result. Then try, in a terminal:

    export GPUPOOL_HOME={home}
    {jupyter} gpupool queue
    {jupyter} gpupool submit {work}/train_digits.py --gpus 1 --time 30m
    {jupyter} gpupool logs -f last

  Ctrl-C here ends the demo, its jobs and its service.
"""


def run(options: argparse.Namespace) -> None:
    """Run the demo until Ctrl-C."""
    if shutil.which("jupyter-lab", path=str(Path(sys.executable).parent)) is None:
        raise Refused(
            "demo",
            "JupyterLab is not installed beside jupyter-gpupool. Try: pip install 'jupyter-gpupool[tour]'",
        )
    port = choose_port(options.port, FIRST_PORT)
    simulated = options.gpus == "simulated"
    home, work = prepare(options.dir.resolve(), simulated=simulated)
    token = secrets.token_hex(24)
    url = f"http://127.0.0.1:{port}/lab/tree/tour.ipynb?token={token}"
    say("Starting the pool ...")
    with running_service(home, options) as client, until_interrupted():
        while True:
            say("Starting JupyterLab (about ten seconds) ...")
            with running_lab(home, work, port, token, options) as lab:
                say(welcome(url, home, work, simulated=simulated))
                lab.wait()
            pause_without_lab(client)


def prepare(folder: Path, *, simulated: bool) -> tuple[Path, Path]:
    """Make the demo's home and its folder of notebooks; keep what the user has changed there."""
    home, work = (files.private_folder(folder / name) for name in ("home", "work"))
    files.give_policy(home, simulated=simulated)
    files.give_work(work)
    return home, work


@contextlib.contextmanager
def running_service(home: Path, options: argparse.Namespace) -> Iterator[Client]:
    """Run the pool's service; at the end stop it together with its jobs."""
    command = [sys.executable, "-m", "jupyter_gpupool.app", "serve"]
    if options.gpus == "simulated":
        command += ["--simulate", files.POOL]
    if options.allow_root:
        command.append("--allow-root")
    client = Client(Connection(Home.of({"GPUPOOL_HOME": str(home)}).url()))
    log = home / "service.log"
    with running(command, environment(home), log, lambda: answers(client), "The pool") as service:
        try:
            yield client
        finally:
            with contextlib.suppress(PoolError, OSError, subprocess.TimeoutExpired):
                client.shutdown(keep_jobs=False)
                service.wait(END_TIMEOUT_S)


@contextlib.contextmanager
def running_lab(
    home: Path, work: Path, port: int, token: str, options: argparse.Namespace
) -> Iterator[subprocess.Popen[bytes]]:
    """Run JupyterLab over `work`; yield its process once it serves."""
    command = [
        *(sys.executable, "-m", "jupyterlab", f"--port={port}", "--ServerApp.port_retries=0"),
        *("--ip=127.0.0.1", f"--ServerApp.root_dir={work}", "--ServerApp.default_url=/lab/tree/tour.ipynb"),
        *(["--no-browser"] if options.no_browser else []),
        *(["--allow-root"] if options.allow_root else []),
    ]
    settings = home / "lab-settings"
    files.quiet(settings)
    own = {
        "JUPYTER_TOKEN": token,
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "PYTHONSTARTUP": str(Path(client.__file__).with_name("startup.py")),
    }
    address = f"http://127.0.0.1:{port}/api?token={token}"
    with running(
        command, environment(home) | own, home / "lab.log", lambda: serves(address), "JupyterLab"
    ) as lab:
        yield lab


def welcome(url: str, home: Path, work: Path, *, simulated: bool) -> str:
    """Return what the terminal says once all is up."""
    title = files.title(simulated=simulated)
    jupyter = Path(sys.executable).parent / "jupyter"
    return WELCOME.format(title=title, url=url, home=home, work=work, jupyter=jupyter)


def answers(client: Client) -> bool:
    """Whether the pool's service answers."""
    try:
        client.whoami()
    except (PoolError, OSError):
        return False
    return True


def pause_without_lab(client: Client) -> None:
    """Say what goes on while JupyterLab is stopped, and wait for Enter to start it again."""
    try:
        queue = client.queue()
    except PoolError as error:
        raise Refused("demo", f"The pool's service has ended: {error}") from error
    counts = counts_text(len(queue["running"]), len(queue["waiting"]))
    say(f"\nJupyterLab has stopped. The pool goes on without it: {counts}.")
    say("Press Enter to start JupyterLab again, or Ctrl-C to end the demo.")
    sys.stdin.readline()
