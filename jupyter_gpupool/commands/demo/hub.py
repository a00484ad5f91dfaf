"""The demo of a site: a JupyterHub on the loopback interface, with fifty people and a pool.

Owns: the Hub's process and its end, and the end of what the Hub leaves running: jobs and their launcher.
Never: schedules, or reads the ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import sys
import webbrowser
from pathlib import Path

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.commands.demo import files
from jupyter_gpupool.commands.demo.processes import (
    choose_port,
    environment,
    running,
    say,
    serves,
    until_interrupted,
)
from jupyter_gpupool.devices.base import DevicesError
from jupyter_gpupool.devices.find import open_pool
from jupyter_gpupool.engines.base import Ended, EngineError
from jupyter_gpupool.engines.local.engine import LocalEngine
from jupyter_gpupool.policy.load import load_policy

FIRST_PORT = 8000
PROXY = "configurable-http-proxy"
ADMINISTRATOR = "admin"
LETTERS = "abcdefghkmnpqrstuvwxyz23456789"
WELCOME = """
{title}

  Open   {url}

  Log in as one of these, password  {password}

{people}
    administrator: {administrator}

  Choose a slice, open tour.ipynb and run its cells from the top. Log out in the middle:
  the jobs go on. Then log in as a colleague in a private window.

  Ctrl-C here ends the demo, its servers and its jobs.
"""


def run(options: argparse.Namespace) -> None:
    """Run the demo until Ctrl-C.

    Raises
    ------
    Refused
        JupyterHub or its proxy is not installed, or does not start.
    """
    path = proxy_path()
    port = choose_port(options.port, FIRST_PORT)
    hub_port = choose_port(None, port + 1)
    proxy_port = choose_port(None, hub_port + 1)
    folder = options.dir.resolve()
    simulated = options.gpus == "simulated"
    if not simulated:
        check_cards()
    people = prepare(folder, simulated=simulated)
    password = kept_password(folder / "hub" / "password")
    own = {
        "PATH": path,
        "GPUPOOL_DEMO_DIR": str(folder),
        "GPUPOOL_DEMO_PORTS": f"{port},{hub_port},{proxy_port}",
        "GPUPOOL_DEMO_PASSWORD": password,
        "GPUPOOL_DEMO_POOL": files.POOL if simulated else "",
        "GPUPOOL_DEMO_ANNOUNCEMENT": files.title(simulated=simulated),
    }
    url = f"http://127.0.0.1:{port}"
    config = files.site_files() / "jupyterhub_config.py"
    command = [sys.executable, "-m", "jupyterhub", "-f", str(config)]
    say("Starting JupyterHub (about ten seconds) ...")
    try:
        with (
            running(
                command,
                environment(folder / "home") | own,
                folder / "hub" / "hub.log",
                lambda: serves(f"{url}/hub/health") and serves(f"{url}/services/gpupool/health"),
                "JupyterHub with its pool",
            ) as hub,
            until_interrupted(),
        ):
            say(welcome(url, password, people, simulated=simulated))
            if not options.no_browser:
                webbrowser.open(url)
            hub.wait()
            raise Refused("demo", f"JupyterHub has ended by itself; see {folder / 'hub' / 'hub.log'}.")
    finally:
        asyncio.run(end_jobs(folder / "home"))


def proxy_path() -> str:
    """Return the PATH on which JupyterHub finds its proxy.

    Raises
    ------
    Refused
        JupyterHub or the proxy is missing; the sentence says how to get it.
    """
    if importlib.util.find_spec("jupyterhub") is None:
        raise Refused(
            "demo",
            "JupyterHub is not installed beside jupyter-gpupool.",
            hint="Try: pip install 'jupyter-gpupool[hub,tour]', or a Lab alone: jupyter gpupool demo --lab",
        )
    own = Path(sys.prefix) / "proxy" / "node_modules" / ".bin"
    path = os.pathsep.join([str(own), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if shutil.which(PROXY, path=path) is None:
        raise Refused(
            "demo",
            f"JupyterHub's proxy, {PROXY}, is not installed.",
            hint=f"Try: npm install -g {PROXY}, or a Lab alone: jupyter gpupool demo --lab",
        )
    return path


def check_cards() -> None:
    """Look for this machine's cards before anything is started.

    Raises
    ------
    Refused
        There are none that can be used; the sentence says why.
    """
    try:
        open_pool(None).close()
    except DevicesError as error:
        raise Refused("demo", str(error), hint="Try a simulated pool: jupyter gpupool demo") from None


def prepare(folder: Path, *, simulated: bool) -> dict[str, list[str]]:
    """Make the pool's home and a ready folder for everybody; return who belongs to which group."""
    home, _ = (files.private_folder(folder / name) for name in ("home", "hub"))
    files.give_policy(home, simulated=simulated)
    site = load_policy((files.site_files() / files.POLICY).read_text())
    groups = {name: list(group.members) for name, group in site.groups.items()}
    for person in [ADMINISTRATOR, *(name for members in groups.values() for name in members)]:
        own = files.private_folder(folder / "users" / person)
        files.give_work(own)
        files.quiet(own / ".jupyter" / "lab" / "user-settings")
    return groups


def kept_password(file: Path) -> str:
    """Return the demo's password, the same at each start; others on this machine cannot guess it."""
    if not file.exists():
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write("".join(secrets.choice(LETTERS) for _ in range(10)))
    return file.read_text()


def welcome(url: str, password: str, groups: dict[str, list[str]], *, simulated: bool) -> str:
    """Return what the terminal says once all is up."""
    width = max(map(len, groups))
    people = "".join(f"    {group:<{width}}  {' '.join(members)}\n" for group, members in groups.items())
    return WELCOME.format(
        title=files.title(simulated=simulated),
        url=url,
        password=password,
        people=people,
        administrator=ADMINISTRATOR,
    )


async def end_jobs(home: Path) -> None:
    """End the jobs that outlive the Hub, and their launcher; the next demo finds how they ended."""
    engine = LocalEngine(home)

    def heard(_: Ended) -> None:
        """Leave it to the next service."""

    with contextlib.suppress(EngineError):
        await engine.open(heard)
        await engine.shutdown(kill_jobs=True)
