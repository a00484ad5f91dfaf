"""``jupyter gpupool launcher``: the system's launcher, run by root for a service that is not root's.

Owns: checking what it was told before it starts. Never: what it does then (see `engines.local.daemon`).
"""

from __future__ import annotations

import argparse
import os
import pwd
import stat
import sys
from pathlib import Path

from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.enable import make_portable
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.commands import Command, answer


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "--state", metavar="FOLDER", required=True, help="root's own folder, for the jobs and the socket"
    )
    parser.add_argument(
        "--service-user", metavar="NAME", required=True, help="the account of the service that may ask"
    )
    parser.add_argument(
        "--snapshots", metavar="FOLDER", required=True, help="the service's folder of code snapshots"
    )


def _launch(options: argparse.Namespace) -> int:
    from jupyter_gpupool.engines.local.daemon import AnotherLauncherError, stand
    from jupyter_gpupool.engines.local.trust import Trust

    state, snapshots = Path(os.path.abspath(options.state)), Path(os.path.abspath(options.snapshots))
    service = _permitted(state, options.service_user)

    def ready() -> None:
        sentence = f"The launcher for the account {service.pw_name} listens in {state}."
        answer(options, {"state": str(state)}, [sentence])
        sys.stdout.flush()

    try:
        make_portable(Home(state)).chmod(0o755)
        stand(state, Trust(service.pw_uid, state / "jobs", snapshots), ready)
    except (OSError, AnotherLauncherError) as error:
        raise PoolError("conflict", f"The launcher cannot start: {error}.") from None


def _permitted(state: Path, name: str) -> pwd.struct_passwd:
    """Return the service's account.

    Raises
    ------
    Refused
        We are not root, there is no such account, or others could put files into `state`.
    """
    if os.geteuid() != 0:
        raise Refused(
            "invalid_option",
            "Only root can start the system's launcher.",
            hint="A launcher of your own account starts by itself.",
        )
    for path in {*_way_to(state), *_way_to(state.resolve())}:
        _check_roots_own(path)
    try:
        return pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise Refused(
            "invalid_option",
            f"This machine has no account {name!r} for the service.",
            hint=f"Make it with: useradd --system --user-group --no-create-home {name}",
        ) from None


def _way_to(folder: Path) -> tuple[Path, ...]:
    return (folder, *folder.parents)


def _check_roots_own(path: Path) -> None:
    """Refuse a folder or link in which another account could put its own in place of root's."""
    if not os.path.lexists(path):
        return
    found = path.lstat()
    open_to_others = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    if found.st_uid != 0 or (open_to_others and not stat.S_ISLNK(found.st_mode)):
        raise Refused(
            "unsafe_folder",
            f"{path} is not root's alone to write (uid {found.st_uid}, mode "
            f"{stat.S_IMODE(found.st_mode):04o}), so another account could put files in its place.",
            hint=f"Make it safe with: chown root {path} && chmod go-w {path}",
        )


LAUNCHER = Command(_launch, _arguments)
