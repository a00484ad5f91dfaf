"""What a launcher run by root does for the service, and what it does not.

Owns: checking that work names an account, its own folder, and a snapshot of the service's. So a
service that somebody has taken over can start work as people, but not as root or the system, and can
have root neither read nor write a file of its choice. Never: which account is permitted (see `identity`).
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpupool.engines.base import EngineError, NoSuchFileError, WorkSpec
from jupyter_gpupool.engines.local.files import open_folder

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Trust:
    """The service that may ask: its uid, the folder of jobs, and where its snapshots lie."""

    uid: int
    jobs: Path
    snapshots: Path

    def check(self, spec: WorkSpec) -> None:
        """Refuse work that is not for an account, or that lies elsewhere.

        Raises
        ------
        EngineError
            Says what is wrong.
        """
        if spec.user is None:
            raise EngineError(f"The launcher is root's and works for accounts only; {spec.key} names none.")
        folder = self.jobs / str(spec.job)
        if Path(spec.folder) != folder:
            raise EngineError(f"The folder of {spec.key} must be {folder}, not {spec.folder}.")

    def open_snapshot(self, path: str) -> int:
        """Return a descriptor to read a snapshot, by way of no link.

        Raises
        ------
        OSError
            It is missing, or no regular file of the service's below `snapshots`.
        """
        try:
            *folders, name = Path(path).relative_to(self.snapshots).parts
            with open_folder(self.snapshots, *folders) as within:
                snapshot = os.open(name, _READ, dir_fd=within)
        except (ValueError, NoSuchFileError):
            raise _not_the_services(path) from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        found = os.fstat(snapshot)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != self.uid:
            os.close(snapshot)
            raise _not_the_services(path)
        return snapshot


def _not_the_services(path: str) -> OSError:
    return OSError(errno.EPERM, "it is no snapshot of the service's", path)
