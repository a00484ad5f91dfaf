"""The folders of a job: which there are, and whose.

Owns: making them, as ``jobs/<id>/{out,checkpoint,<attempt>/code}``. What a job may write is its
account's, and lies in folders that only the launcher can write, so that no name in them is the job's
doing. Never: what is written there.
"""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_gpupool.engines.local.identity import Account

OUT, CHECKPOINT, CODE, PROGRESS = "out", "checkpoint", "code", "progress.jsonl"


def make_folders(job: Path, attempt: Path, account: Account | None) -> None:
    """Make what the attempt needs; what is there already is kept, and put right.

    Raises
    ------
    OSError
        The disk refuses, or the account's files cannot be given to it.
    """
    for folder in (job, attempt):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if account:
            os.chown(folder, -1, account.gid)
            folder.chmod(0o710)
    for folder in (job / OUT, job / CHECKPOINT, attempt / CODE):
        folder.mkdir(mode=0o700, exist_ok=True)
        _give(folder, account)
    if account:  # who owns the folder makes this file when there is something to say
        (attempt / PROGRESS).touch(mode=0o600)
        _give(attempt / PROGRESS, account)


def _give(path: Path, account: Account | None) -> None:
    if account:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
