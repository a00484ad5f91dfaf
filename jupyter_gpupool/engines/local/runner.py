"""The runner: the process between the launcher and the user's program, one for each attempt.

Owns: waiting for the order and the word to go, unpacking the snapshot, starting the user's program,
reaping, ending what the program leaves behind, and reporting through the descriptor it was handed.
Never: a path of its own choosing, the launcher's sockets, a decision on limits.

It is forked from the launcher without exec, ahead of need, together with the process that will
become the user's program, which is already in its control group. Everything about the job comes by
descriptor. Until the word to go, the end of the launcher is the end of both, and nothing has run.
The order names the account to become; both become it on receiving the order, before they read the
specification, or enter or open anything that it names.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import resource
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from jupyter_gpupool.engines.local.cgroups import Leaf
from jupyter_gpupool.engines.local.forks import close_all_but, never_return
from jupyter_gpupool.engines.local.identity import Account, drop
from jupyter_gpupool.engines.local.proctree import MARK, Tree
from jupyter_gpupool.engines.local.records import ExitRecord, mark_begun, report_exit
from jupyter_gpupool.engines.local.unpack import BadSnapshotError, unpack

GO = b"g"
ASKED = signal.SIGUSR1
"""Tells a runner, which never takes it, that its job was asked to end and whoever asked ends the grace."""
TREE_PATIENCE_S = 2.0
_JOB_UMASK = 0o022
_ROOM_FOR_LAST_WORDS = 64 * 1024
_LONGEST_MESSAGE = 256 * 1024
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Runner:
    """The launcher's end of a runner that has no order yet."""

    pid: int
    leaf: Leaf | None
    channel: socket.socket

    def order(
        self, account: Account | None, spec: int, log: int, exit_record: int, snapshot: int | None
    ) -> None:
        """Hand over one attempt: whom to become (None: nobody else), and the descriptors."""
        descriptors = [spec, log, exit_record] + ([] if snapshot is None else [snapshot])
        _Order(account, descriptors).send(self.channel)

    def go(self) -> None:
        """Let it run; after this the attempt may have begun."""
        self.channel.sendall(GO)
        self.channel.close()

    def dismiss(self) -> None:
        """Let it end without having run anything."""
        self.channel.close()


@dataclass(frozen=True, slots=True)
class _Order:
    """What the launcher tells a runner, and the runner its program, in one message."""

    account: Account | None
    descriptors: list[int]

    def send(self, channel: socket.socket) -> None:
        message = json.dumps(self.account.as_json() if self.account else None)
        socket.send_fds(channel, [message.encode()], self.descriptors)

    @classmethod
    def receive(cls, channel: socket.socket, most: int) -> _Order | None:
        """The order with at most `most` descriptors; None when the other end went away instead."""
        message, descriptors, _, _ = socket.recv_fds(channel, _LONGEST_MESSAGE, most)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if not message:
            return None
        account = json.loads(message)
        return cls(Account.from_json(account) if account else None, descriptors)


def _pair() -> tuple[socket.socket, socket.socket]:
    """Two ends between which each message stays whole."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def fork_runner(leaf: Leaf | None) -> Runner:
    """Fork a runner that will start its job inside `leaf`.

    Raises
    ------
    OSError
        The machine has no process or memory left.
    """
    ours, theirs = _pair()
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        never_return(lambda: _runner(theirs.fileno(), leaf))
    theirs.close()
    return Runner(pid, leaf, ours)


def _runner(channel: int, leaf: Leaf | None) -> None:
    gc.disable()
    close_all_but(channel)
    os.setsid()
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, (ASKED,))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    program_channel, program_end = _pair()
    runner = os.getpid()
    program = os.fork()
    if program == 0:
        never_return(lambda: _become_the_program(program_end.fileno(), leaf, runner))
    program_end.close()
    with socket.socket(fileno=channel) as launcher:
        order = _Order.receive(launcher, 4)
        failure = _become(order.account) if order else ""
        if order is None or launcher.recv(1) != GO:
            program_channel.close()
            os.waitpid(program, 0)
            return
    spec, log, exit_record, *snapshot = order.descriptors
    mark_begun(exit_record)
    failure = (
        failure
        or _prepare_code(spec, snapshot)
        or _let_go(program_channel, _Order(order.account, [spec, log]))
    )
    program_channel.close()
    record = _wait_and_clear(program, Tree(leaf, runner, job_dir=""), failure)
    report_exit(exit_record, replace(record, message=record.message or _full_disk(log)))


def _become(account: Account | None) -> str:
    """Become the account that the job runs as; returns what went wrong, or nothing."""
    try:
        if account:
            drop(account)
    except OSError as error:
        return f"The job could not become the account that it runs as: {_reason(error)}."
    return ""


def _prepare_code(spec: int, snapshot: list[int]) -> str:
    """Unpack the snapshot into ``code``; returns what went wrong, or nothing.

    The end of the waiting process means that the job was told to end: unpacking then stops.
    """
    job = _read(spec)
    code, sha256 = _folder(job) / "code", job["snapshot_sha256"]
    failure = ""
    with suppress(_AbandonedError):
        signal.signal(signal.SIGCHLD, _abandon)
        failure = _unpack(code, snapshot, sha256)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return failure


def _unpack(code: Path, snapshot: list[int], sha256: str | None) -> str:
    try:
        for descriptor in snapshot:
            with open(descriptor, "rb") as file:
                unpack(file, sha256 or "", code)
    except BadSnapshotError as error:
        return str(error)
    except OSError as error:
        return f"The snapshot could not be unpacked into {code}: {_reason(error)}."
    return ""


class _AbandonedError(Exception):
    """The job was told to end before it began."""


def _abandon(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _AbandonedError


def _let_go(program: socket.socket, order: _Order) -> str:
    """Let the waiting process become the user's program; returns what went wrong, or nothing."""
    with suppress(ConnectionError):
        order.send(program)
        return program.recv(_LONGEST_MESSAGE).decode()
    return ""


def _wait_and_clear(program: int, tree: Tree, failure: str) -> ExitRecord:
    """Reap whatever ends until the program has, then end what it leaves behind.

    In a job that was asked to end the program may be but a shell that is gone at once: what it leaves
    behind may be saving its work, and has the rest of the grace.
    """
    reaped = status = 0
    while reaped != program:
        reaped, status = os.waitpid(-1, 0)
    if ASKED in signal.sigpending():
        _reap_the_rest()
    ended = time.time()
    gone = _end_the_rest(tree)
    code = os.waitstatus_to_exitcode(status)
    peak = -(-resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
    if failure:
        return ExitRecord(None, None, "start", failure, None, ended, gone)
    return ExitRecord(code if code >= 0 else None, -code if code < 0 else None, "exit", "", peak, ended, gone)


def _full_disk(log: int) -> str:
    """Say that the log may lack its end, since its disk has no room left; nothing where it has."""
    disk = os.fstatvfs(log)
    full = disk.f_bavail * disk.f_frsize < _ROOM_FOR_LAST_WORDS
    return "The disk of the job's log was full when the job ended." if full else ""


def _reap_the_rest() -> None:
    """Reap whatever ends until no process of the job is left."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _end_the_rest(tree: Tree) -> bool:
    """Kill and reap until nothing of the job is left; False if something still is after a while."""
    deadline = time.monotonic() + TREE_PATIENCE_S
    while not (_reap() and not (tree.leaf and tree.leaf.pids())):
        if time.monotonic() > deadline:
            return False
        tree.kill()
        time.sleep(0.002)
    return True


def _reap() -> bool:
    """Reap every child that has ended; True when there is no child left."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return False
    return True


def _become_the_program(channel: int, leaf: Leaf | None, runner: int) -> None:
    """Wait in the control group for the order, then turn into the user's program."""
    _end_with(runner)
    _reset_signals()
    close_all_but(channel)
    os.setsid()
    failure = _enter(leaf)
    with socket.socket(fileno=channel) as answer:
        order = _Order.receive(answer, 2)
        if order:
            failure = failure or _become(order.account)
            _end_with(runner)  # the kernel forgets it when the account changes
            answer.sendall((failure or _execute(order)).encode())


def _end_with(parent: int) -> None:
    """Let the end of `parent` be the end of this process, until the next exec and through it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _enter(leaf: Leaf | None) -> str:
    try:
        if leaf:
            leaf.enter()
    except OSError as error:
        return f"The job could not enter its control group: {_reason(error)}."
    return ""


def _read(spec: int) -> dict[str, Any]:
    """What the specification says; its descriptor, which others read too, stays open."""
    with open(spec, "rb", closefd=False) as file:
        file.seek(0)
        job: dict[str, Any] = json.load(file)
    return job


def _folder(job: dict[str, Any]) -> Path:
    return Path(job["folder"]) / str(job["attempt"])


def _execute(order: _Order) -> str:
    """Exec the user's program; returns only to say why that was not possible."""
    spec, log = order.descriptors
    job = _read(spec)
    of_account = order.account.environment() if order.account else {}
    environment = {**of_account, **job["environment"], MARK: str(_folder(job))}
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.umask(_JOB_UMASK)
    try:
        os.chdir(job["workdir"])
    except OSError as error:
        return f"The working directory {job['workdir']} cannot be entered: {_reason(error)}."
    try:
        os.execvpe(job["argv"][0], job["argv"], environment)
    except OSError as error:
        return _why_not_executed(job["argv"][0], error)


def _why_not_executed(program: str, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        hint = "there is no such program (or the interpreter that its first line names is missing)"
    elif error.errno == errno.EACCES:
        hint = "it is not executable for this user"
    elif error.errno == errno.ENOEXEC:
        hint = "it is no program: a script needs a first line like #!/bin/sh"
    elif error.errno == errno.E2BIG:
        hint = "its arguments and environment are longer than the system allows"
    else:
        hint = _reason(error)
    return f"{program} could not be started: {hint}."


def _reset_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
