"""From a row of a workload to what the scheduler sees: sizes, groups and priorities as the policy says.

Owns: the request of a task under a policy, and the refusal of what could never run. Never: the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jupyter_gpupool.client.arguments import nearest
from jupyter_gpupool.frame import Frame
from jupyter_gpupool.policy import sizes
from jupyter_gpupool.policy.model import NORMAL, Policy
from jupyter_gpupool.scheduler.feasibility import Feasibility, Refusal
from jupyter_gpupool.scheduler.floor import Floor
from jupyter_gpupool.scheduler.limits import Limits
from jupyter_gpupool.scheduler.model import Kind, Mib, Request, Seconds, Usage, Work
from jupyter_gpupool.simulator.workload import Task, WorkloadError


class Entry:
    """The door of a simulated pool: what the service does with a request before it is queued.

    How many jobs a user may have in the queue is not counted: a simulated user does not come back later.
    A job's limit counts from the beginning of its work; to the scheduler it is longer by `latency`.
    """

    def __init__(self, policy: Policy, frame: Frame, latency: Seconds) -> None:
        self._policy = policy
        self._latency = latency
        self._frame = frame
        bare = frame.snapshot((), (), (), Usage())
        limits = Limits(bare, 0)
        self._feasible = Feasibility(bare, Floor(bare, 0, limits.resources), limits)
        self._requests: dict[tuple[Kind, int, Mib], Request] = {}

    def work(self, id: int, task: Task, now: Seconds) -> Work:
        """Return the task as the scheduler sees it, submitted `now`.

        Raises
        ------
        WorkloadError
            The policy has no such group, priority or window.
        """
        job = task.kind == "job"
        work = Work(
            id=id,
            kind=task.kind,
            user=task.user,
            group=task.group,
            priority=task.priority or NORMAL,
            submitted=now,
            limit=task.limit + (self._latency if job else 0),
            request=self._request(task),
            resumable=task.resumable,
            grace=self._policy.jobs.grace if job else 0,
            window=task.window,
        )
        self.check(work)
        return work

    def check(self, work: Work) -> None:
        """Raise WorkloadError where the policy has no such group, priority or window."""
        self._known(work.group, "group", self._frame.groups)
        self._known(work.priority, "priority", self._frame.priorities)
        if work.window is not None:
            self._known(work.window, "calendar", self._frame.windows)

    def refusal(self, work: Work) -> Refusal | None:
        """Say why work could never run."""
        asked = replace(work, limit=work.limit - self._latency) if work.kind == "job" else work
        return self._feasible.problem(asked)

    def _request(self, task: Task) -> Request:
        key = task.kind, task.gpus, task.mib
        found = self._requests.get(key)
        if found is None:
            found = self._requests[key] = self._sized(*key)
        return found

    def _sized(self, kind: Kind, gpus: int, mib: Mib) -> Request:
        """Return the request with its CPUs and memory; a session gets the slice that holds it."""
        serving = [name for name, found in self._frame.partitions.items() if found.serves(kind)]
        cards = [gpu.memory_mib for gpu in self._frame.gpus if gpu.partition in serving]
        least, largest = min(cards, default=0), max(cards, default=0)
        cut = None
        if kind == "session":
            there = [cut for name in serving for cut in self._policy.partitions[name].slices]
            cut = sizes.smallest_that_holds(there, None if mib else gpus, mib or None, least)
        if cut is not None and cut.share:
            mib = sizes.mib_of(cut, least)
        elif cut is not None:
            gpus, mib = cut.gpus or 0, 0
        part = sizes.part_of_a_card(gpus, mib, cut, largest)
        cpus = sizes.cpus_beside(part, cut, self._policy.defaults)
        memory = sizes.memory_beside(part, cut, cpus, self._policy.defaults)
        share = cut.share if cut and mib else None
        return Request(gpus=gpus, gpu_mib=mib, share=share, cpus_milli=cpus, memory_mib=memory)

    def _known(self, name: str, what: str, known: Mapping[str, object]) -> None:
        if name not in known:
            guess = nearest(name, known) or f" It has {', '.join(known) or 'none'}."
            raise WorkloadError(f"The policy has no {what} {name!r}, which the workload names.{guess}")
