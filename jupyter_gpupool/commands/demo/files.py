"""What every demo shows: its pool, the site's policy, and what its people find in their folders.

Owns: copying the files, and keeping what somebody has changed since. Never: a process.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from jupyter_gpupool.commands.ready import ready_files

POOL = "4x8x32GiB"
SIMULATED = "Simulated pool: four nodes of eight 32 GiB cards. Jobs really run; only the cards are simulated."
POLICY = "policy.yaml"
WORK = ("tour.ipynb", "train_digits.py")
NEWS = Path("@jupyterlab/apputils-extension/notification.jupyterlab-settings")


def title(*, simulated: bool) -> str:
    """Say what the demo's cards are."""
    return SIMULATED if simulated else "This machine's own cards."


def site_files() -> Path:
    """Return the folder with the demo's policy, notebook, script and Hub configuration."""
    return ready_files("demo")


def private_folder(path: Path) -> Path:
    """Make a folder that nobody else can read."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)
    return path


def give_policy(home: Path, *, simulated: bool) -> None:
    """Put the site's policy in force; for real cards, whose names it does not know, the built-in one."""
    if simulated:
        _copy(site_files() / POLICY, home / POLICY)
    else:
        (home / POLICY).unlink(missing_ok=True)


def give_work(folder: Path) -> None:
    """Put the notebook and the script into somebody's folder."""
    for name in WORK:
        _copy(site_files() / name, folder / name)


def quiet(settings: Path) -> None:
    """Write Lab settings with which it asks no questions about news and updates."""
    file = settings / NEWS
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))


def _copy(source: Path, target: Path) -> None:
    if not target.exists():
        shutil.copyfile(source, target)
