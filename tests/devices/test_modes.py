from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.devices.modes import ISOLATION, Mode, environment, framework_caps, merged, mode_of

CARD = 32 * 1024


def grant(mode, gpus, **other):
    return environment(mode, gpus, **{"card_mib": CARD, "lease_id": 7, "cpus_milli": 6000, **other})


def test_whole_cards_are_named_by_uuid_and_nothing_is_capped():
    assert grant("whole", [("GPU-a", CARD), ("GPU-b", CARD)]) == {
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "OMP_NUM_THREADS": "6",
        "GPUPOOL_GPUS": "GPU-a,GPU-b",
        "GPUPOOL_GPU_MEMORY_MIB": "32768,32768",
        "GPUPOOL_LEASE_ID": "7",
        "GPUPOOL_SHARING_MODE": "whole",
    }


def test_an_eighth_of_a_card_is_capped_in_each_framework():
    given_ = grant("timeslice", [("GPU-a", 4096)])
    assert given_["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert given_["PYTORCH_ALLOC_CONF"] == "per_process_memory_fraction:0.1250"
    assert given_["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.1250"
    assert given_["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert given_["FLAGS_gpu_memory_limit_mb"] == "4096"
    assert given_["CUPY_GPU_MEMORY_LIMIT"] == "4294967296"


def test_names_that_break_a_framework_are_never_set():
    given_ = grant("timeslice", [("GPU-a", 4096)])
    assert "PYTORCH_CUDA_ALLOC_CONF" not in given_
    assert "XLA_CLIENT_MEM_FRACTION" not in given_


@given(st.integers(256, 200_000), st.integers(256, 200_000))
def test_a_fraction_is_never_more_than_the_slice(slice_mib, card_mib):
    slice_mib = min(slice_mib, card_mib)
    fraction = framework_caps(slice_mib, card_mib)["XLA_PYTHON_CLIENT_MEM_FRACTION"]
    ten_thousandths = int(fraction.replace(".", ""))
    assert 0 < ten_thousandths * card_mib <= slice_mib * 10_000
    assert (ten_thousandths + 1) * card_mib > slice_mib * 10_000


def test_simulated_cards_hide_real_ones_and_are_still_told():
    given_ = grant("simulated", [("SIM-node1-0", 4096)])
    assert given_["CUDA_VISIBLE_DEVICES"] == ""
    assert given_["GPUPOOL_GPUS"] == "SIM-node1-0"
    assert given_["GPUPOOL_SHARING_MODE"] == "simulated"
    assert "PYTORCH_ALLOC_CONF" not in given_


@pytest.mark.parametrize("mode", ["whole", "timeslice", "simulated"])
def test_work_on_the_cpu_sees_no_card(mode):
    given_ = grant(mode, [])
    assert given_["CUDA_VISIBLE_DEVICES"] == given_["GPUPOOL_GPUS"] == ""


@pytest.mark.parametrize(("milli", "threads"), [(500, "1"), (1000, "1"), (2500, "2"), (8000, "8")])
def test_threads_follow_the_cpus(milli, threads):
    assert grant("whole", [("GPU-a", CARD)], cpus_milli=milli)["OMP_NUM_THREADS"] == threads


def test_a_mode_promises_no_more_than_it_holds():
    assert dict.fromkeys(get_args(Mode), "soft") == ISOLATION


def test_the_mode_follows_from_the_grant():
    assert mode_of(whole=True, simulated=False) == "whole"
    assert mode_of(whole=False, simulated=False) == "timeslice"
    assert mode_of(whole=True, simulated=True) == "simulated"


def test_a_grant_wins_over_the_users_environment_and_keeps_other_settings_of_torch():
    own = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HOME": "/home/ada",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True,per_process_memory_fraction:0.9",
        "XLA_CLIENT_MEM_FRACTION": ".9",
    }
    both = merged(own, grant("timeslice", [("GPU-a", 4096)]))
    assert both["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert both["HOME"] == "/home/ada"
    assert both["PYTORCH_ALLOC_CONF"] == "expandable_segments:True,per_process_memory_fraction:0.1250"
    assert "XLA_CLIENT_MEM_FRACTION" not in both


def test_a_whole_card_leaves_the_users_settings_of_frameworks_alone():
    own = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "XLA_CLIENT_MEM_FRACTION": ".9"}
    both = merged(own, grant("whole", [("GPU-a", CARD)]))
    assert own.items() <= both.items()
