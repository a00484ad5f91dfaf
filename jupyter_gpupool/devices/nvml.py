"""The cards of this machine, as NVIDIA's management library (NVML) reports them.

Owns: every call to NVML, and the sentences for what goes wrong with driver and cards.
Never: a guess. What NVML does not tell is unknown (None), not zero; a card that cannot be asked
is reported by `NvmlPool.healthy`, and says nothing about its memory or its processes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pynvml

from .base import Card, DevicesError, Load, NodeInfo, Process, ProcessKind

MIB = 1024 * 1024
SIMULATE_HINT = "to try the pool without a GPU, set GPUPOOL_SIMULATE=4x8x32GiB"

_NO_DRIVER = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "No NVIDIA driver is installed here (libnvidia-ml.so.1 was not found): install it, or, "
        + SIMULATE_HINT
        + "."
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "The NVIDIA driver is installed but not loaded: load it (modprobe nvidia) or reboot, or, "
        + SIMULATE_HINT
        + "."
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "The loaded NVIDIA driver and its library differ in version, as after an upgrade: reboot the machine."
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "This account may not use the NVIDIA driver: ask the administrator for access to /dev/nvidiactl."
    ),
}
_SICK = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "it has fallen off the bus: reboot the machine, and if it happens again "
    "have the card and its power checked",
    pynvml.NVML_ERROR_RESET_REQUIRED: "it must be reset (nvidia-smi --gpu-reset) before it can work again",
}
_NO_ANSWER_MEANS_NONE = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)
_MIG = "MIG is enabled on it, and this version shares only whole cards: disable it with nvidia-smi -mig 0"
_LISTS: tuple[tuple[ProcessKind, Callable[[Any], list[Any]]], ...] = (
    ("compute", pynvml.nvmlDeviceGetComputeRunningProcesses),
    ("mps", pynvml.nvmlDeviceGetMPSComputeRunningProcesses),
    ("graphics", pynvml.nvmlDeviceGetGraphicsRunningProcesses),
)


class NvmlPool:
    """The cards of one machine; open until `close`.

    Parameters
    ----------
    node
        What to call this machine; its host name when not given.

    Raises
    ------
    DevicesError
        There is no driver, or no card that can be used; the sentence says what to do.
    """

    simulated = False

    def __init__(self, node: str | None = None) -> None:
        self._node = node or socket.gethostname()
        self._handles: dict[str, Any] = {}
        self._cards: list[Card] = []
        self._left_out: list[str] = []
        self._sampled: dict[str, int] = {}
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise DevicesError(
                _NO_DRIVER.get(error.value, f"The NVIDIA driver does not start: {error}.")
            ) from None
        try:
            self._find_cards()
        except BaseException:
            self.close()
            raise

    def nodes(self) -> list[NodeInfo]:
        """Return this machine, with the CPUs this process may use and all of its memory."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB
        return [NodeInfo(self._node, 1000 * len(os.sched_getaffinity(0)), memory)]

    def cards(self) -> list[Card]:
        """Return the cards found when the pool was opened; capacity = total less what the driver reserves."""
        return list(self._cards)

    def processes(self) -> list[Process]:
        """Return the union of NVML's compute, MPS and graphics lists, each pid once per card."""
        return [process for uuid, handle in self._handles.items() for process in _processes(uuid, handle)]

    def free_mib(self, uuid: str) -> int | None:
        """Return the free memory of a card, rounded down; None when the card does not answer."""
        try:
            return int(_memory(self._handles[uuid]).free) // MIB
        except pynvml.NVMLError:
            return None

    def healthy(self) -> dict[str, str]:
        """Ask every card, and say of each that does not answer, or went over to MIG, why it is out."""
        return {card.uuid: _trouble(f"GPU {card.index}", self._handles[card.uuid]) for card in self._cards}

    def loads(self) -> dict[str, Load]:
        """Return the share of time in which each card ran a kernel, and each process had its cores."""
        return {uuid: Load(_busy(handle), self._shares(uuid)) for uuid, handle in self._handles.items()}

    def describe(self) -> str:
        """Return the cards by model, and each that was left out with the reason."""
        models: dict[str, int] = {}
        for card in self._cards:
            name = f"{card.model} ({card.memory_mib} MiB)"
            models[name] = models.get(name, 0) + 1
        cards = ", ".join(f"{count} x {name}" for name, count in models.items())
        return " ".join([f"{self._node}: {cards}.", *self._left_out])

    def close(self) -> None:
        """Let go of the driver; safe to call twice."""
        self._handles = {}
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            pass

    def _shares(self, uuid: str) -> dict[int, int] | None:
        """Return the mean of what was sampled of each process since the last call."""
        since = self._sampled.get(uuid, 0)
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._handles[uuid], since)
        except pynvml.NVMLError as error:
            return {} if error.value in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND) else None
        found: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > since:
                found.setdefault(sample.pid, []).append(10 * sample.smUtil)
                self._sampled[uuid] = max(self._sampled.get(uuid, 0), sample.timeStamp)
        return {pid: sum(parts) // len(parts) for pid, parts in found.items()}

    def _find_cards(self) -> None:
        count = pynvml.nvmlDeviceGetCount()
        if count == 0:
            raise DevicesError(
                "The NVIDIA driver sees no GPU on this machine: check nvidia-smi, "
                f"and that this process may open /dev/nvidia*; {SIMULATE_HINT}."
            )
        for index in range(count):
            try:
                self._add(index)
            except pynvml.NVMLError as error:
                self._left_out.append(f"GPU {index} is left out: {_reason(error)}.")
        if not self._cards:
            raise DevicesError("No GPU of this machine can be used. " + " ".join(self._left_out))
        self._link()

    def _add(self, index: int) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        if trouble := _trouble(f"GPU {index}", handle):
            self._left_out.append(trouble.replace(" is out of use: ", " is left out: ", 1))
            return
        memory = _memory(handle)
        card = Card(
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            node=self._node,
            index=index,
            model=pynvml.nvmlDeviceGetName(handle),
            memory_mib=(int(memory.total) - int(getattr(memory, "reserved", 0))) // MIB,
        )
        self._handles[card.uuid] = handle
        self._cards.append(card)

    def _link(self) -> None:
        """Name as one link group the cards that reach each other over NVLink, directly or through others."""
        groups: list[set[str]] = []
        for one, other in _linked_pairs(self._handles):
            joined = {one, other}.union(*(group for group in groups if group & {one, other}))
            groups = [group for group in groups if not group & joined] + [joined]
        named = {uuid: f"{self._node}/nvlink{n}" for n, group in enumerate(groups) for uuid in group}
        self._cards = [replace(card, link_group=named.get(card.uuid, "")) for card in self._cards]


def _linked_pairs(handles: dict[str, Any]) -> Iterator[tuple[str, str]]:
    uuids = list(handles)
    for place, one in enumerate(uuids):
        for other in uuids[place + 1 :]:
            try:
                status = pynvml.nvmlDeviceGetP2PStatus(
                    handles[one], handles[other], pynvml.NVML_P2P_CAPS_INDEX_NVLINK
                )
            except pynvml.NVMLError:
                continue
            if status == pynvml.NVML_P2P_STATUS_OK:
                yield one, other


def _memory(handle: Any) -> Any:
    """Return total, free and (where the driver tells) reserved bytes."""
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as error:
        if error.value not in (*_NO_ANSWER_MEANS_NONE, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH):
            raise
        return pynvml.nvmlDeviceGetMemoryInfo(handle)


def _busy(handle: Any) -> int | None:
    try:
        return 10 * int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except pynvml.NVMLError:
        return None


def _trouble(name: str, handle: Any) -> str:
    try:
        _memory(handle)
        return f"{name} is out of use: {_MIG}." if _mig_enabled(handle) else ""
    except pynvml.NVMLError as error:
        return f"{name} is out of use: {_reason(error)}."


def _mig_enabled(handle: Any) -> bool:
    try:
        return pynvml.NVML_DEVICE_MIG_ENABLE in pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError as error:
        if error.value in _NO_ANSWER_MEANS_NONE:
            return False
        raise


def _reason(error: pynvml.NVMLError) -> str:
    return _SICK.get(error.value, f"the driver answers “{error}” for it: see dmesg for its last Xid")


def _processes(uuid: str, handle: Any) -> list[Process]:
    """Return the processes of one card: first kind seen, largest known memory; none if it is lost."""
    found: dict[int, Process] = {}
    for kind, listed in _LISTS:
        for entry in _entries(listed, handle):
            known = found.get(entry.pid)
            sizes = [
                size for size in (_mib(entry.usedGpuMemory), known.mib if known else None) if size is not None
            ]
            found[entry.pid] = Process(
                entry.pid, uuid, max(sizes) if sizes else None, known.kind if known else kind
            )
    return list(found.values())


def _entries(listed: Callable[[Any], list[Any]], handle: Any) -> list[Any]:
    try:
        return listed(handle)
    except pynvml.NVMLError:
        return []


def _mib(size: int | None) -> int | None:
    """Return bytes as MiB, rounded up."""
    return None if size is None else -(-size // MIB)
