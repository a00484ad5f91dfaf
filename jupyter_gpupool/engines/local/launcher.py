"""The launcher: one small process a pool, which starts jobs and outlives the service.

Owns: the attempts of this pool, their runners (by pidfd), control groups and time limits, the record
of their ends, and telling the clients. Never: a queue, a decision on who runs, a path that the
specification does not name, more than one thread.

It can be killed at any moment: runners go on, and the next launcher adopts them from their records.
Nothing starts twice and nothing runs unrecorded, because a runner waits until its record is on disk,
and ends by itself if the launcher ends first.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jupyter_gpupool._version import __version__
from jupyter_gpupool.engines.base import Ended, EngineError, Started, WorkSpec
from jupyter_gpupool.engines.local import identity
from jupyter_gpupool.engines.local.attempt import CLEAR_PATIENCE_S, KILL_AGAIN_S, Attempt, Clearing, Step
from jupyter_gpupool.engines.local.broker import Broker
from jupyter_gpupool.engines.local.cgroups import LAUNCHER, Subtree
from jupyter_gpupool.engines.local.proctree import marked, starttime
from jupyter_gpupool.engines.local.protocol import report_to_json, spec_from_json
from jupyter_gpupool.engines.local.records import ExitRecord, Index, RunnerRecord, StopRecord
from jupyter_gpupool.engines.local.runner import ASKED, Runner, fork_runner
from jupyter_gpupool.engines.local.trust import Trust

_READ_ONLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class Launcher:
    """The attempts of the pool at `home` within the boot `boot_id`.

    With `trust` it is the system's launcher: run by root for a service that is not, and for good.
    """

    def __init__(
        self,
        home: Path,
        boot_id: str,
        subtree: Subtree,
        selector: selectors.BaseSelector,
        trust: Trust | None = None,
    ) -> None:
        self._boot_id = boot_id
        self._subtree = subtree
        self._selector = selector
        self._trust = trust
        self._jobs = home / "jobs"
        self._broker = Broker(self._jobs)
        self._index = Index(home)
        self._attempts: dict[str, Attempt] = {}
        self._spare: Runner | None = None
        self._ends_to_tell: list[Ended] = []
        self.retiring = False
        self.quitting = False

    # What clients ask for

    def handle(self, name: str, message: dict[str, Any]) -> Any:
        """Do what the checked request asks and return its result.

        Raises
        ------
        EngineError
            It cannot be done; nothing was started.
        """
        if name == "start":
            return report_to_json(self.start(spec_from_json(message["spec"])))
        if name == "stop":
            self.stop(message["key"], StopRecord(message["cause"], time.monotonic() + message["grace_s"]))
        elif name == "extend":
            return self.extend(message["key"], message["limit_s"])
        elif name == "list":
            return [report_to_json(attempt.report()) for attempt in self._attempts.values()]
        elif name == "forget":
            self.forget(message["key"])
        elif name == "left":
            return self.left(message["key"])
        elif name in ("retire", "quit"):
            self._leave(at_once=name == "quit")
        elif name == "open":
            return self._broker.open(message["job"], message["parts"])
        elif name == "files":
            return self._broker.list(message["job"], message["parts"])
        elif name == "newest":
            return self._broker.newest(message["job"], message["parts"])
        elif name == "remove":
            self.remove(message["job"])
        return None

    def start(self, spec: WorkSpec) -> Started:
        """Run `spec`, unless its key is known already."""
        known = self._attempts.get(spec.key)
        if known:
            return known.started()
        if self.retiring or self.quitting:
            raise EngineError("The launcher is being stopped and starts nothing new.")
        self._account_for(spec)
        attempt = Attempt(spec)
        if attempt.records.runner():
            raise EngineError(f"The attempt {spec.key} has run already; it does not run twice.")
        self._attempts[spec.key] = attempt
        self._begin(attempt)
        return attempt.started()

    def stop(self, key: str, request: StopRecord) -> None:
        """Ask the attempt to end, and have it killed when the request says."""
        attempt = self._attempts.get(key)
        if attempt and attempt.pidfd >= 0:
            self._ask(attempt, attempt.asked(request))

    def extend(self, key: str, limit_s: int) -> bool:
        """Let an attempt run for `limit_s` seconds in all, unless it is over or was asked to end."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.pidfd < 0 or attempt.stop:
            return False
        longer = replace(attempt.spec, limit_s=max(1, limit_s))
        try:
            attempt.records.write_spec(longer)
        except OSError as error:
            raise EngineError(f"The new limit of {key} cannot be written down: {error.strerror}.") from None
        attempt.spec = longer
        return True

    def forget(self, key: str) -> None:
        """Drop an attempt that is over."""
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if attempt.end is None or attempt.alive:
            raise EngineError(f"The attempt {key} is not over; it cannot be forgotten.")
        self._index.drop(attempt.spec)
        del self._attempts[key]

    def left(self, key: str) -> list[int]:
        """The processes of an attempt, even of one that is not known here."""
        attempt = self._attempts.get(key)
        return sorted(attempt.tree.pids() if attempt else marked(str(self._jobs / key)))

    def remove(self, job: int) -> None:
        """Delete the folder of a job that is over."""
        if any(attempt.alive for attempt in self._attempts.values() if attempt.spec.job == job):
            raise EngineError(f"The job {job} is not over; its files cannot be removed.")
        self._broker.remove(job)

    def _leave(self, *, at_once: bool) -> None:
        if self.system:
            raise EngineError("The launcher is the system's; to end it: systemctl stop gpupool-launcher.")
        self.retiring = self.retiring or not at_once
        self.quitting = self.quitting or at_once

    def _account_for(self, spec: WorkSpec) -> identity.Account | None:
        """The account that the work is to run as, if that is permitted; None = the launcher's own."""
        if self._trust:
            self._trust.check(spec)
        if spec.user is None:
            return None
        if os.geteuid() != 0:
            raise EngineError(
                f"The launcher is not root's and cannot run {spec.key} as {spec.user!r}; "
                "for run_as: user it must be started by root."
            )
        return identity.account_of(spec.user)

    # Beginning

    def _begin(self, attempt: Attempt) -> None:
        """Hand the attempt to a runner, record that, and only then let it go."""
        try:
            account = self._account_for(attempt.spec)
            self._index.add(attempt.spec)
            attempt.records.prepare(attempt.spec, account)
            try:
                self._hand_over(attempt, account)
            except ConnectionError:  # the runner made ahead of need was killed
                self._hand_over(attempt, account)
        except EngineError as error:  # the account has been closed since its first runner ended
            self._settle(attempt, attempt.never_began(str(error), time.time()))
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            reason = (error.strerror or str(error)).lower()
            message = f"The job could not be started: {reason}{where}."
            self._settle(attempt, attempt.never_began(message, time.time()))

    def _hand_over(self, attempt: Attempt, account: identity.Account | None) -> None:
        spec, records = attempt.spec, attempt.records
        with ExitStack() as opened:
            snapshot = _kept(opened, self._open_snapshot(spec.snapshot)) if spec.snapshot else None
            spec_file, log, exit_record = (
                _kept(opened, descriptor)
                for descriptor in (records.open_spec(), records.open_log(account), records.open_exit())
            )
            runner, self._spare = self._spare or self._make_runner(), None
            opened.callback(runner.dismiss)
            if runner.leaf:
                runner.leaf.limit(spec.cpus_milli, spec.memory_mib)
            runner.order(account, spec_file, log, exit_record, snapshot)
            unless_gone = opened.enter_context(ExitStack())
            pidfd = _kept(unless_gone, os.pidfd_open(runner.pid))
            record = RunnerRecord(
                pid=runner.pid,
                starttime=starttime(runner.pid) or 0,
                boot_id=self._boot_id,
                clock=time.monotonic(),
                started=time.time(),
                leaf=runner.leaf,
            )
            records.write_runner(record)
            runner.go()
            unless_gone.pop_all()
        attempt.runner = record
        attempt.begun += 1
        self._watch(attempt, pidfd)

    def _open_snapshot(self, path: str) -> int:
        return self._trust.open_snapshot(path) if self._trust else os.open(path, _READ_ONLY)

    def _make_runner(self) -> Runner:
        return fork_runner(self._subtree.make_leaf(f"job-{time.time_ns():x}"))

    def prepare_spare(self) -> None:
        """Make a runner ahead of need, when there is none."""
        if self._spare is None and not self.retiring:
            with suppress(OSError):
                self._spare = self._make_runner()

    def reap(self) -> None:
        """Reap the runners that have ended; their records say how, not their statuses."""
        with suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                if self._spare and self._spare.pid == pid:
                    self._spare.dismiss()
                    self._spare = None

    def _watch(self, attempt: Attempt, pidfd: int) -> None:
        attempt.pidfd = pidfd
        self._selector.register(pidfd, selectors.EVENT_READ, lambda _events: self._runner_ended(attempt))

    # Ending

    def _ask(self, attempt: Attempt, request: StopRecord) -> None:
        attempt.stop = request
        with suppress(OSError):
            attempt.records.write_stop(request)
        with suppress(ProcessLookupError):  # its end is about to be seen
            signal.pidfd_send_signal(attempt.pidfd, ASKED)
        attempt.tree.ask()

    def _runner_ended(self, attempt: Attempt) -> None:
        self._selector.unregister(attempt.pidfd)
        os.close(attempt.pidfd)
        attempt.pidfd = -1
        self.reap()
        self._conclude(attempt)

    def _conclude(self, attempt: Attempt) -> None:
        """Find out how an attempt ended whose runner is gone."""
        record = attempt.records.end()
        if isinstance(record, ExitRecord):
            self._clear(attempt, self._end_reported(attempt, record), record.tree_gone)
        elif attempt.begun < 2 and not attempt.stop and not attempt.records.began():
            self._begin(attempt)
        else:
            self._clear(attempt, attempt.lost(time.time()), gone=False)

    def _end_reported(self, attempt: Attempt, record: ExitRecord) -> Ended:
        leaf = attempt.runner.leaf if attempt.runner else None
        return attempt.ended_as(
            record,
            tree_gone=False,
            peak_mib=leaf.peak_mib() if leaf else None,
            oom=leaf.out_of_memory() if leaf else False,
        )

    def _clear(self, attempt: Attempt, report: Ended, gone: bool) -> None:
        """Settle at once what is known to be gone; else kill until it is."""
        leaf = attempt.tree.leaf
        if gone and not (leaf and leaf.pids()):
            self._settle(attempt, replace(report, tree_gone=True))
        else:
            now = time.monotonic()
            attempt.clearing = Clearing(report, since=now, again=now)
            self._clear_again(attempt, now)

    def _clear_again(self, attempt: Attempt, now: float) -> None:
        clearing = attempt.clearing
        assert clearing is not None
        if attempt.tree.kill():
            attempt.clearing = None
            self._settle(attempt, replace(clearing.report, tree_gone=True))
            return
        clearing.put_off(now)
        if not clearing.told and now - clearing.since > CLEAR_PATIENCE_S:
            clearing.told = True
            self._settle(attempt, clearing.report)

    def _settle(self, attempt: Attempt, end: Ended) -> None:
        attempt.end = end
        if end.tree_gone and attempt.runner and attempt.runner.leaf:
            attempt.runner.leaf.remove()
        with suppress(OSError):
            attempt.records.write_end(end)
        self._ends_to_tell.append(end)

    def take_ends(self) -> list[Ended]:
        """The ends settled since the last call."""
        ends, self._ends_to_tell = self._ends_to_tell, []
        return ends

    # Time

    def next_deadline(self) -> float | None:
        """The next moment, in monotonic time, at which `tick` has something to do."""
        steps = [attempt.next_step() for attempt in self._attempts.values()]
        return min((step[0] for step in steps if step), default=None)

    def tick(self, now: float) -> None:
        """Do what is due at `now`."""
        for attempt in list(self._attempts.values()):
            step = attempt.next_step()
            if step and step[0] <= now:
                self._do(attempt, step[1], now)

    def _do(self, attempt: Attempt, step: Step, now: float) -> None:
        if step == "ask":
            self._ask(attempt, attempt.asked_by_limit())
        elif step == "kill":
            attempt.kill_again = now + KILL_AGAIN_S
            attempt.tree.kill()
            with suppress(ProcessLookupError):  # reaped already: its end is about to be seen
                signal.pidfd_send_signal(attempt.pidfd, attempt.nudge(now))
        else:
            self._clear_again(attempt, now)

    @property
    def system(self) -> bool:
        """Whether it is the system's, which never leaves by itself."""
        return self._trust is not None

    @property
    def busy(self) -> bool:
        """Whether an attempt is alive."""
        return any(attempt.alive for attempt in self._attempts.values())

    def hello(self) -> dict[str, Any]:
        """What a client hears first."""
        survival = asdict(self._subtree.survival())
        return {
            "event": "hello",
            "pid": os.getpid(),
            "version": __version__,
            "boot_id": self._boot_id,
            "root": os.geteuid() == 0,
            "system": self.system,
            "survival": survival,
        }

    # Coming and going

    def recover(self) -> None:
        """Take over what an earlier launcher left: adopt what lives, settle what ended."""
        self._broker.recover()
        for spec, records in self._index.read():
            attempt = Attempt(spec, runner=records.runner(), stop=records.stop())
            record = records.end()
            if attempt.runner is None and record is None:
                self._index.drop(spec)
            else:
                self._attempts[spec.key] = attempt
                self._take_over(attempt, record)
        kept = [attempt.runner.leaf for attempt in self._attempts.values() if attempt.runner]
        self._subtree.sweep(keep=frozenset(leaf.held.name for leaf in kept if leaf))

    def _take_over(self, attempt: Attempt, record: ExitRecord | Ended | None) -> None:
        same_boot = attempt.runner is not None and attempt.runner.boot_id == self._boot_id
        if isinstance(record, Ended):
            attempt.end = record
            if not record.tree_gone:
                self._clear(attempt, record, gone=not same_boot)
        elif same_boot:
            pidfd = _open_if_alive(attempt.runner)
            if pidfd is None:
                self._conclude(attempt)
            else:
                self._watch(attempt, pidfd)
        elif record:
            self._settle(attempt, attempt.ended_as(record, tree_gone=True, peak_mib=None, oom=False))
        else:
            self._settle(attempt, attempt.rebooted(time.time()))

    def close(self) -> None:
        """Let go of everything; jobs go on."""
        if self._spare:
            self._spare.dismiss()
            with suppress(ChildProcessError):
                os.waitpid(self._spare.pid, 0)
        self._subtree.sweep()
        self._subtree.leave(LAUNCHER)


def _kept(opened: ExitStack, descriptor: int) -> int:
    """`descriptor`, to be closed with `opened`."""
    opened.callback(os.close, descriptor)
    return descriptor


def _open_if_alive(runner: RunnerRecord | None) -> int | None:
    """A pidfd of the recorded runner; None when its process id is free or somebody else's."""
    if runner is None:
        return None
    try:
        pidfd = os.pidfd_open(runner.pid)
    except OSError:
        return None
    if starttime(runner.pid) == runner.starttime:
        return pidfd
    os.close(pidfd)
    return None
