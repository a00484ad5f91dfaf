from __future__ import annotations

import os
import subprocess
import sys

import pynvml
import pytest

from jupyter_gpupool.devices.base import DevicesError, Load, Process
from jupyter_gpupool.devices.find import open_pool
from jupyter_gpupool.devices.nvml import NvmlPool

GIB = 1024**3
MIB = 1024**2


def gpu(index: int, *, total: int = 80 * GIB, reserved: int = 512 * MIB, used: int = 0, mig: int = 0) -> str:
    return f"gpu {index} GPU-{index} {total} {reserved} {used} {mig}"


@pytest.fixture
def pool(driver):
    """A pool of two cards; the second holds 10 GiB."""
    driver.says(gpu(0), gpu(1, used=10 * GIB))
    pool = NvmlPool("node1")
    yield pool
    pool.close()


def test_capacity_is_what_the_driver_reports_less_what_it_reserves(pool):
    first, second = pool.cards()
    assert (first.uuid, first.node, first.index, first.model) == ("GPU-0", "node1", 0, "Stub GPU 0")
    assert first.memory_mib == 80 * 1024 - 512
    assert not first.simulated
    assert second.uuid == "GPU-1"


def test_free_memory_is_asked_anew(pool, driver):
    assert pool.free_mib("GPU-1") == 80 * 1024 - 512 - 10 * 1024
    driver.says(gpu(0), gpu(1, used=11 * GIB))
    assert pool.free_mib("GPU-1") == 80 * 1024 - 512 - 11 * 1024
    with pytest.raises(KeyError):
        pool.free_mib("GPU-7")


def test_the_node_is_this_machine(pool):
    (node,) = pool.nodes()
    assert node.name == "node1"
    assert node.cpus_milli == 1000 * len(os.sched_getaffinity(0))
    assert node.memory_mib > 0


@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH]
)
def test_an_older_driver_that_tells_no_reserve_gives_the_total(driver, code):
    driver.says(gpu(0), f"error 0 nvmlDeviceGetMemoryInfo_v2 {code}")
    assert NvmlPool().cards()[0].memory_mib == 80 * 1024


def test_processes_are_the_union_of_three_lists_each_pid_once_per_card(driver, pool):
    driver.says(
        gpu(0),
        gpu(1),
        f"proc compute 0 100 {GIB + 1}",
        f"proc graphics 0 100 {2 * GIB}",
        f"proc mps 0 101 {GIB}",
        f"proc graphics 1 102 {GIB}",
        f"proc compute 1 100 {GIB}",
    )
    assert set(pool.processes()) == {
        Process(100, "GPU-0", 2048, "compute"),
        Process(101, "GPU-0", 1024, "mps"),
        Process(102, "GPU-1", 1024, "graphics"),
        Process(100, "GPU-1", 1024, "compute"),
    }


def test_memory_that_is_not_told_is_unknown_and_not_zero(driver, pool):
    driver.says(gpu(0), gpu(1), "proc compute 0 100 -1", "proc compute 1 101 -1", f"proc mps 1 101 {GIB}")
    assert pool.processes() == [
        Process(100, "GPU-0", None, "compute"),
        Process(101, "GPU-1", 1024, "compute"),
    ]


def test_process_sizes_are_rounded_up(driver, pool):
    driver.says(gpu(0), gpu(1), "proc compute 0 100 1")
    assert pool.processes() == [Process(100, "GPU-0", 1, "compute")]


def test_a_list_that_the_driver_does_not_know_is_empty(driver, pool):
    driver.says(
        gpu(0),
        gpu(1),
        f"proc compute 0 100 {GIB}",
        f"error 0 nvmlDeviceGetMPSComputeRunningProcesses_v3 {pynvml.NVML_ERROR_NOT_SUPPORTED}",
    )
    assert pool.processes() == [Process(100, "GPU-0", 1024, "compute")]


def test_a_lost_card_is_reported_and_says_nothing_about_its_memory(driver, pool):
    assert pool.healthy() == {"GPU-0": "", "GPU-1": ""}
    lost = pynvml.NVML_ERROR_GPU_IS_LOST
    driver.says(
        gpu(0),
        gpu(1),
        f"error 1 nvmlDeviceGetMemoryInfo_v2 {lost}",
        f"error 1 nvmlDeviceGetComputeRunningProcesses_v3 {lost}",
    )
    health = pool.healthy()
    assert health["GPU-0"] == ""
    assert health["GPU-1"].startswith("GPU 1 is out of use: it has fallen off the bus: reboot")
    assert pool.free_mib("GPU-1") is None
    assert pool.processes() == []
    assert len(pool.cards()) == 2


def test_a_card_that_goes_over_to_mig_is_out_of_use(driver, pool):
    driver.says(gpu(0), gpu(1, mig=1))
    assert "MIG is enabled" in pool.healthy()["GPU-1"]


def test_cards_that_cannot_be_used_are_left_out_with_a_sentence(driver):
    driver.says(
        gpu(0),
        gpu(1, mig=1),
        gpu(2),
        f"error 2 nvmlDeviceGetHandleByIndex_v2 {pynvml.NVML_ERROR_GPU_IS_LOST}",
    )
    pool = NvmlPool("node1")
    assert [card.uuid for card in pool.cards()] == ["GPU-0"]
    assert pool.describe().startswith("node1: 1 x Stub GPU 0 (81408 MiB).")
    assert "GPU 1 is left out: MIG is enabled on it" in pool.describe()
    assert "GPU 2 is left out: it has fallen off the bus" in pool.describe()


def test_a_card_without_mig_answers_not_supported_and_is_used(driver):
    driver.says(gpu(0), f"error 0 nvmlDeviceGetMigMode {pynvml.NVML_ERROR_NOT_SUPPORTED}")
    assert len(NvmlPool().cards()) == 1


def test_cards_joined_by_nvlink_share_a_group(driver):
    driver.says(*(gpu(n) for n in range(6)), "link 0 1", "link 2 3", "link 1 4", "link 4 2")
    groups = {card.index: card.link_group for card in NvmlPool("node1").cards()}
    assert groups[0] == groups[1] == groups[2] == groups[3] == groups[4] != ""
    assert groups[5] == ""


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "reboot"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "ask the administrator"),
        (pynvml.NVML_ERROR_UNKNOWN, "does not start"),
    ],
)
def test_a_driver_that_does_not_start_is_explained(driver, code, says):
    driver.says(f"init_error {code}")
    with pytest.raises(DevicesError, match=says):
        NvmlPool()


def test_no_driver_at_all_is_explained(monkeypatch):
    def nowhere(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", nowhere)
    with pytest.raises(
        DevicesError, match=r"No NVIDIA driver is installed here .* GPUPOOL_SIMULATE=4x8x32GiB"
    ):
        open_pool(None)


def test_a_driver_without_a_card_is_explained(driver):
    with pytest.raises(DevicesError, match="sees no GPU"):
        NvmlPool()


def test_no_usable_card_is_explained_card_by_card(driver):
    driver.says(gpu(0, mig=1))
    with pytest.raises(DevicesError, match=r"No GPU of this machine can be used\. GPU 0 is left out: MIG"):
        NvmlPool()


def test_the_binding_loads_the_library_by_its_name(driver):
    driver.says(gpu(0))
    script = "from jupyter_gpupool.devices.find import open_pool; print(open_pool(None).cards()[0].uuid)"
    said = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "LD_LIBRARY_PATH": str(driver.library.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "GPU-0\n"


def test_closing_twice_is_harmless(driver):
    driver.says(gpu(0))
    pool = NvmlPool()
    pool.close()
    pool.close()
    assert pool.processes() == []


def test_how_busy_a_card_and_each_process_is(driver, pool):
    driver.says(
        gpu(0), gpu(1), "busy 0 37", "busy 1 0", "sample 0 100 5 30", "sample 0 100 6 40", "sample 0 101 6 2"
    )
    assert pool.loads() == {"GPU-0": Load(370, {100: 350, 101: 20}), "GPU-1": Load(0, {})}
    assert pool.loads()["GPU-0"] == Load(370, {})  # nothing since
    driver.says(gpu(0), gpu(1), "busy 0 90", "sample 0 100 6 40", "sample 0 100 7 90")
    assert pool.loads()["GPU-0"] == Load(900, {100: 900})


def test_a_load_that_the_driver_does_not_tell_is_unknown(driver, pool):
    refused = f"error 0 nvmlDeviceGetProcessUtilization {pynvml.NVML_ERROR_NOT_SUPPORTED}"
    driver.says(gpu(0), gpu(1), refused)
    assert pool.loads()["GPU-0"] == Load(None, None)
