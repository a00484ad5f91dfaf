"""Real accounts of this machine for tests that run as root, and a Python that those accounts can read."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from jupyter_gpupool.engines.local.cgroups import Leaf, Subtree
from jupyter_gpupool.engines.local.identity import Account, account_of

PREFIX = "gpt"
SITE = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")


class Accounts(NamedTuple):
    """Two people, and a system account like the one that a service runs as; the password is "secret"."""

    ada: Account
    bob: Account
    service: Account


@pytest.fixture(scope="session")
def accounts() -> Iterator[Accounts]:
    """Accounts made for this run and removed at its end; skips where the tests are not root's."""
    if os.geteuid() != 0:
        pytest.skip("only root can make accounts")
    _remove_those_of_dead_runs()
    homes = Path(tempfile.mkdtemp(prefix="gpupool-homes-", dir="/var/tmp"))
    homes.chmod(0o755)
    names = [f"{PREFIX}{os.getpid()}{who}" for who in ("ada", "bob", "svc")]
    try:
        for name in names[:2]:
            _retry("useradd", "--create-home", "--home-dir", str(homes / name), "--shell", "/bin/bash",
                   "--user-group", name)  # fmt: skip
        _retry("useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell",
               "/usr/sbin/nologin", "--user-group", names[2])  # fmt: skip
        passwords = "".join(f"{name}:secret\n" for name in names[:2])
        subprocess.run(["chpasswd"], input=passwords, text=True, check=True, capture_output=True)
        found = pwd.getpwnam(names[2])
        service = Account(
            found.pw_name, found.pw_uid, found.pw_gid, (found.pw_gid,), found.pw_dir, found.pw_shell
        )
        yield Accounts(account_of(names[0]), account_of(names[1]), service)
    finally:
        for name in names:
            _remove(name)
        shutil.rmtree(homes, ignore_errors=True)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other accounts can pass through, as pytest's own cannot be; gone after the test."""
    folder = Path(tempfile.mkdtemp(prefix="gpupool-open-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def readable_python() -> Iterator[Path]:
    """A Python that every account can run, with this project and all it needs; its scripts lie beside it."""
    base = next((found for found in (sys._base_executable, "/usr/bin/python3") if _usable(found)), None)
    if base is None:
        pytest.skip(f"no Python {SITE.parts[1]} here can be run by other accounts")
    folder = Path(tempfile.mkdtemp(prefix="gpupool-python-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True, umask=0o022)
        _make_readable_copy(folder)
        yield folder / "bin" / "python"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class SystemLauncher:
    """A launcher as the system runs it: by root, for the account of a service.

    Attributes
    ----------
    state, snapshots : Path
        Its folder, and the service's with code.
    process : subprocess.Popen
        The one that runs now.
    """

    def __init__(self, folder: Path, service: Account) -> None:
        self.state, self.snapshots = folder / "launcher", folder / "service" / "snapshots"
        self._service = service
        self.snapshots.mkdir(parents=True)
        for path in (self.snapshots.parent, self.snapshots):
            os.chown(path, service.uid, service.gid)
            path.chmod(0o700)
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        """Start it, and wait until it listens."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_gpupool.app", "launcher", "--state", str(self.state),
             "--service-user", self._service.name, "--snapshots", str(self.snapshots)],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
        )  # fmt: skip
        assert self.process.stdout is not None
        assert "listens" in self.process.stdout.readline()
        return self.process

    def kill(self) -> None:
        """End the launcher alone, as abruptly as can be; its jobs go on."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def end(self) -> None:
        """End the launcher and all that it started."""
        self.kill()
        tree = Subtree.at(self.state)
        if tree.held:
            everything = Leaf(tree.held, tree.limits, "")
            while tree.held.exists():  # a process that is ending may still be in it
                everything.kill()
                everything.remove()
                time.sleep(0.01)


@pytest.fixture
def system_launcher(accounts: Accounts, open_folder: Path) -> Iterator[SystemLauncher]:
    """A launcher run by root for `accounts.service`; what it started is gone after the test."""
    launcher = SystemLauncher(open_folder, accounts.service)
    yield launcher
    launcher.end()


def _make_readable_copy(folder: Path) -> None:
    """Fill the new environment `folder` with what this one has."""
    here = Path(sys.prefix)
    ours = subprocess.run([sys.executable, "-c", "import site; print(site.getsitepackages()[0])"],
                          capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    shutil.rmtree(folder / SITE)
    shutil.copytree(ours, folder / SITE, copy_function=_link_or_copy)
    for editable in (folder / SITE).glob("_editable_impl_*.pth"):
        editable.unlink()
    package = Path(__file__).parents[1] / "jupyter_gpupool"
    if (folder / SITE / "jupyter_gpupool").exists():
        shutil.rmtree(folder / SITE / "jupyter_gpupool")
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, folder / SITE / "jupyter_gpupool", copy_function=_copy, ignore=unwanted)
    for name in ("share", "etc", "proxy"):
        if (here / name).exists():
            shutil.copytree(here / name, folder / name, copy_function=_link_or_copy, symlinks=True)
    for script in (here / "bin").iterdir():
        _copy_script(script, folder / "bin")
    for path in folder.rglob("*/"):
        path.chmod(0o755)


def _copy_script(script: Path, into: Path) -> None:
    """Copy a program that names its Python in the first line, for the Python in `into`."""
    if not script.is_file() or script.is_symlink() or (into / script.name).exists():
        return
    first, _, rest = script.read_bytes().partition(b"\n")
    if first.startswith(b"#!") and b"python" in first:
        (into / script.name).write_bytes(b"#!" + os.fsencode(into / "python") + b"\n" + rest)
        (into / script.name).chmod(0o755)


def _link_or_copy(source: str, target: str) -> None:
    """Hard-link a file that all may read; copy any other."""
    try:
        if stat.S_IMODE(os.stat(source).st_mode) & 0o044 == 0o044:
            os.link(source, target)
            return
    except OSError:
        pass
    _copy(source, target)


def _copy(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, 0o755 if os.access(source, os.X_OK) else 0o644)


def _usable(python: str) -> bool:
    """Whether accounts of all kinds can run `python`, and it is of our version."""
    path = Path(python).resolve()
    if not path.exists() or not all(folder.stat().st_mode & 0o001 for folder in path.parents):
        return False
    version = subprocess.run(
        [python, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
    )
    return version.stdout.strip() == "{}.{}".format(*sys.version_info[:2])


def _remove_those_of_dead_runs() -> None:
    for entry in pwd.getpwall():
        digits = entry.pw_name.removeprefix(PREFIX)[:-3]
        if entry.pw_name.startswith(PREFIX) and digits.isdecimal() and not Path("/proc", digits).exists():
            _remove(entry.pw_name)


def _remove(name: str) -> None:
    _retry("userdel", "--force", "--remove", name, give_up_on=(6,))


def _retry(*argv: str, give_up_on: tuple[int, ...] = ()) -> None:
    """Run a program of the account database, whose lock another one may hold; it does not wait for it."""
    for _ in range(100):
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode in (0, 12, *give_up_on):  # 12: the home is not the account's to remove
            return
        if "lock" not in done.stderr:
            break
        time.sleep(0.05)
    raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
