"""`jupyter gpupool demo`: a JupyterLab with a pool of its own, gone without a trace at Ctrl-C.

Owns: the demo's folder, the two processes it starts (service and Lab) and their end.
Never: schedules, or reads the ledger; it is a user of the product like any other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.phrases import counts_text
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.commands import Command

SITE = "4x8x32GiB"
START_TIMEOUT_S = 120
END_TIMEOUT_S = 30
FIRST_PORT = 8888
PORTS_TRIED = 50
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options to the parser of its subcommand."""
    parser.add_argument(
        "--port", type=int, default=None, help="port of JupyterLab on this machine (default: 8888)"
    )
    parser.add_argument(
        "--gpus",
        choices=["simulated", "real"],
        default="simulated",
        help="real: use this machine's NVIDIA cards",
    )
    parser.add_argument("--dir", type=Path, default=Path(".demo"), help="where the demo keeps its files")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--allow-root", action="store_true", help="run as root all the same")


def run(options: argparse.Namespace) -> int:
    """Run the demo until Ctrl-C (or SIGTERM); return the exit status."""
    if os.geteuid() == 0 and not options.allow_root:
        raise Refused(
            "demo", "You are root, and notebooks would run as root. Use another account, or add --allow-root."
        )
    if shutil.which("jupyter-lab", path=str(Path(sys.executable).parent)) is None:
        raise Refused(
            "demo",
            "JupyterLab is not installed beside jupyter-gpupool. Try: pip install 'jupyter-gpupool[tour]'",
        )
    port = choose_port(options.port)
    home, work = prepare(options.dir.resolve())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as processes:
        try:
            say("Starting the pool ...")
            client = processes.enter_context(running_service(home, options))
            token = secrets.token_hex(24)
            url = f"http://127.0.0.1:{port}/lab/tree/tour.ipynb?token={token}"
            while True:
                say("Starting JupyterLab (about ten seconds) ...")
                with running_lab(home, work, port, token, options) as lab:
                    say(welcome(url, home, work, simulated=options.gpus == "simulated"))
                    lab.wait()
                pause_without_lab(client)
        except KeyboardInterrupt:
            say("\nEnding the demo ...")
    say("The demo has ended; its jobs and its service are gone.")
    return 0


def choose_port(asked: int | None) -> int:
    """Return a free port: the one asked for, or the first free one from 8888 on.

    Raises
    ------
    Refused
        When the port that was asked for is taken.
    """
    if asked is not None and not 0 < asked < 65536:
        raise Refused("demo", f"Port {asked} is not a port: use a number from 1 to 65535.")
    first = FIRST_PORT if asked is None else asked
    tried = range(first, min(first + PORTS_TRIED, 65536))
    free = next(filter(is_free, tried), None)
    if free is None:
        raise Refused(
            "demo", f"No port from {tried.start} to {tried.stop - 1} is free. Choose one with --port."
        )
    if asked is not None and free != asked:
        raise Refused(
            "demo", f"Port {asked} is in use by another program. Port {free} is free: --port {free}."
        )
    return free


def is_free(port: int) -> bool:
    """Whether `port` of the loopback interface can be bound now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def prepare(folder: Path) -> tuple[Path, Path]:
    """Make the demo's home and its folder of notebooks; keep what the user has changed there."""
    home, work = folder / "home", folder / "work"
    for made in (home, work):
        made.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.chmod(0o700)
    for source in filter(Path.is_file, site_files().iterdir()):  # pip compiles the script beside it
        target = (home if source.name == "policy.yaml" else work) / source.name
        if not target.exists():
            shutil.copyfile(source, target)
    return home, work


def site_files() -> Path:
    """Return the folder with the demo's policy, notebook and script."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "hub_config" / "demo", package.parent / "hub_config" / "demo"):
        if folder.is_dir():
            return folder
    raise Refused(
        "demo", "The demo's files are missing from this installation. Install jupyter-gpupool again."
    )


@contextlib.contextmanager
def running_service(home: Path, options: argparse.Namespace) -> Iterator[Client]:
    """Run the pool's service; at the end stop it together with its jobs."""
    command = [sys.executable, "-m", "jupyter_gpupool.app", "serve"]
    if options.gpus == "simulated":
        command += ["--simulate", SITE]
    else:
        (home / "policy.yaml").unlink(missing_ok=True)
    if options.allow_root:
        command.append("--allow-root")
    log = home / "service.log"
    service = begin(command, environment(home), log)
    client = Client(Connection(Home.of({"GPUPOOL_HOME": str(home)}).url()))
    try:
        wait_until(lambda: answers(client), service, log, "The pool")
        yield client
    finally:
        with contextlib.suppress(PoolError, OSError, subprocess.TimeoutExpired):
            client.shutdown(keep_jobs=False)
            service.wait(END_TIMEOUT_S)
        end(service)


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
    own = {"JUPYTER_TOKEN": token, "JUPYTERLAB_SETTINGS_DIR": str(quiet_settings(home))}
    log = home / "lab.log"
    lab = begin(command, {**environment(home), **own}, log)
    try:
        wait_until(lambda: serves(f"http://127.0.0.1:{port}/api?token={token}"), lab, log, "JupyterLab")
        yield lab
    finally:
        end(lab)


def quiet_settings(home: Path) -> Path:
    """Return Lab settings of the demo's own, in which it asks no questions about news and updates."""
    folder = home / "lab-settings"
    file = folder / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    return folder


def environment(home: Path) -> dict[str, str]:
    """Return the environment of the demo's processes: one pool, and this interpreter's commands first."""
    bin_folder = str(Path(sys.executable).parent)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("GPUPOOL_", "JUPYTERHUB_"))
    }
    return {
        **kept,
        "GPUPOOL_HOME": str(home),
        "PATH": bin_folder + os.pathsep + os.environ.get("PATH", os.defpath),
    }


def welcome(url: str, home: Path, work: Path, *, simulated: bool) -> str:
    """Return what the terminal says once all is up."""
    title = (
        "A simulated pool: four nodes of eight 32 GiB cards. Jobs really run; only the cards are simulated."
        if simulated
        else "A pool of this machine's own cards."
    )
    jupyter = Path(sys.executable).parent / "jupyter"
    return WELCOME.format(title=title, url=url, home=home, work=work, jupyter=jupyter)


def answers(client: Client) -> bool:
    """Whether the pool's service answers."""
    try:
        client.whoami()
    except (PoolError, OSError):
        return False
    return True


def serves(url: str) -> bool:
    """Whether an HTTP server answers at `url`."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, what: str) -> None:
    """Wait until `ready()`; a process that ends first, or takes too long, is an error with its last lines."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
            raise Refused("demo", f"{what} did not start. The last lines of {log}:\n{tail}")
        time.sleep(0.1)


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


def begin(command: list[str], environ: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process that a Ctrl-C in this terminal does not reach; what it says is added to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=environ,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that the demo started, with patience first."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)


DEMO = Command(run, add_options)
