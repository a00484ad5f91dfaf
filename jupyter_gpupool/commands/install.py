"""``jupyter gpupool install workstation``: a Hub with a pool on this server, ready to be started.

Owns: the account, the folders and the files that `hub_config/workstation` needs; what is there already stays
as it is. Never: starts anything, or changes a file that is there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.commands import Command, answer
from jupyter_gpupool.commands.ready import ready_files

ACCOUNT = "gpupool"
STATE = "var/lib/gpupool"
TOKEN = f"{STATE}/hub-token"
PLACES = {
    "jupyterhub_config.py": "etc/jupyterhub",
    "policy.yaml": f"{STATE}/service",
    "jupyterhub.service": "etc/systemd/system",
    "gpupool.service": "etc/systemd/system",
    "gpupool-launcher.service": "etc/systemd/system",
}
INSTALLED = "/opt/jupyterhub"
"""Where the ready files suppose that jupyter-gpupool is; the copies say where it is."""
NEXT = (
    "Now put this machine's numbers into {policy}, then:",
    "  systemctl daemon-reload",
    "  systemctl enable --now gpupool-launcher gpupool jupyterhub",
    "  {bin}/jupyter gpupool doctor",
)


@dataclass(frozen=True)
class Owner:
    """Who something belongs to."""

    uid: int
    gid: int


ROOT = Owner(0, 0)


@dataclass(frozen=True)
class Step:
    """What was done about one thing: `made`, or `kept` because it was there."""

    done: str
    what: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.done}  {self.what}{self.note}"


def _arguments(parser: Parser) -> None:
    parser.add_argument("what", choices=("workstation",), metavar="workstation", help="one server with GPUs")
    parser.add_argument(
        "--root", metavar="DIR", default="/", help="prepare the system below DIR instead of this one"
    )


def _install(options: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise Refused("invalid_option", "Only root can make accounts and system services.", hint="Use sudo.")
    root = Path(os.path.abspath(options.root))
    try:
        steps = list(workstation(root))
    except OSError as error:
        raise Refused("unwritable_folder", f"{error.filename}: {error.strerror}.") from None
    told = [{"done": step.done, "what": step.what} for step in steps]
    policy, here = root / PLACES["policy.yaml"] / "policy.yaml", f"{sys.prefix}/bin"
    following = [line.format(policy=policy, bin=here) for line in NEXT]
    answer(options, {"steps": told}, [*map(str, steps), "", *following])
    return 0


def workstation(root: Path) -> Iterator[Step]:
    """Prepare the system below `root`; each step says what it did.

    Raises
    ------
    Refused
        The account cannot be made.
    OSError
        A folder or file cannot be made.
    """
    if _account(root) is None:
        _make_account(root)
        yield Step("made", f"account {ACCOUNT}")
    else:
        yield Step("kept", f"account {ACCOUNT}")
    service = _account(root) or ROOT
    yield _folder(root / "etc/jupyterhub", 0o755)
    yield _folder(root / "etc/systemd/system", 0o755)
    yield _folder(root / "var/lib/jupyterhub", 0o700)
    yield _folder(root / STATE, 0o711)
    yield _folder(root / STATE / "launcher", 0o711)
    yield _folder(root / STATE / "service", 0o711, service)
    yield _token(root / TOKEN, service)
    for name, place in PLACES.items():
        own = service if name == "policy.yaml" else ROOT
        yield _copy(ready_files("workstation") / name, root / place / name, own)


def _account(root: Path) -> Owner | None:
    """Return the service's account in the system below `root`."""
    if root == Path("/"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(ACCOUNT)
            return Owner(found.pw_uid, found.pw_gid)
        return None
    try:
        lines = (root / "etc/passwd").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise Refused("invalid_option", f"{root} is no system: it has no etc/passwd.") from None
    fields = next((line.split(":") for line in lines if line.startswith(f"{ACCOUNT}:")), None)
    return Owner(int(fields[2]), int(fields[3])) if fields else None


def _make_account(root: Path) -> None:
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin"]
    command += ["--home-dir", f"/{STATE}/service", "--comment", "GPU pool"]
    command += [] if root == Path("/") else ["--prefix", str(root)]
    try:
        subprocess.run([*command, ACCOUNT], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise Refused("install", f"The account cannot be made: {error.stderr.strip()}") from None


def _folder(path: Path, mode: int, owner: Owner = ROOT) -> Step:
    if path.is_dir():
        return Step("kept", str(path))
    path.mkdir(parents=True)
    os.chown(path, owner.uid, owner.gid)
    path.chmod(mode)
    return Step("made", f"{path}", f"  (mode {mode:04o}, uid {owner.uid})")


def _token(path: Path, reader: Owner) -> Step:
    """Make the token by which the service and the Hub know each other."""
    if path.exists():
        return Step("kept", str(path))
    _write(path, f"{secrets.token_hex(32)}\n", 0o640, Owner(0, reader.gid))
    return Step("made", str(path))


def _copy(source: Path, target: Path, owner: Owner) -> Step:
    text = source.read_text(encoding="utf-8").replace(INSTALLED, sys.prefix)
    if target.exists() or target.is_symlink():
        same = target.is_file() and target.read_text(encoding="utf-8") == text
        return Step("kept", str(target), "" if same else f"  (yours; this version's is {source})")
    _write(target, text, 0o600 if owner.uid else 0o644, owner)
    return Step("made", str(target))


def _write(path: Path, text: str, mode: int, owner: Owner) -> None:
    """Make a file that nobody else could have put there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
        os.fchown(descriptor, owner.uid, owner.gid)
        os.fchmod(descriptor, mode)


INSTALL = Command(_install, _arguments)
