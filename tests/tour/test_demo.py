"""The demo's edges: a busy port, root, a missing Lab, Ctrl-C at once."""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.commands import demo as module
from jupyter_gpupool.commands.demo import hub, lab, processes
from jupyter_gpupool.devices.base import DevicesError
from tests.tour.lab import Demo


def options(tmp_path: Path, *arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_options(parser)
    return parser.parse_args([f"--dir={tmp_path / 'demo'}", *arguments])


@pytest.fixture
def busy_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_busy_port_that_was_asked_for_is_refused_with_a_free_one(busy_port: int) -> None:
    with pytest.raises(Refused, match=rf"^Port {busy_port} is in use .* Port (\d+) is free: --port \1\.$"):
        processes.choose_port(busy_port, 1)


def test_without_a_wish_the_next_free_port_is_taken(busy_port: int) -> None:
    assert busy_port < processes.choose_port(None, busy_port) < busy_port + processes.PORTS_TRIED


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(Refused, match=f"^Port {port} is not a port"):
        processes.choose_port(port, 1)


def test_real_cards_are_looked_for_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_here(simulate: str | None) -> None:
        assert simulate is None
        raise DevicesError("There is no NVIDIA driver.")

    monkeypatch.setattr(hub, "open_pool", none_here)
    with pytest.raises(Refused, match=r"There is no NVIDIA driver\. .*simulated pool"):
        module.run(options(tmp_path, "--gpus=real", "--allow-root"))
    assert not (tmp_path / "demo").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to see root refused")
def test_root_is_refused_unless_allowed(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="--allow-root"):
        module.run(options(tmp_path))
    assert not (tmp_path / "demo").exists()


def test_what_the_user_changed_in_the_demo_is_kept(tmp_path: Path) -> None:
    _, work = lab.prepare(tmp_path / "demo", simulated=True)
    (work / "tour.ipynb").write_text("mine")
    home, work = lab.prepare(tmp_path / "demo", simulated=True)
    assert (work / "tour.ipynb").read_text() == "mine"
    assert (work / "train_digits.py").exists()
    assert (home / "policy.yaml").exists()
    assert home.stat().st_mode & 0o777 == 0o700


def test_ctrl_c_ends_the_demos_jobs_and_leaves_no_process(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "demo")
    script = tmp_path / "sleep.py"
    script.write_text("import time\nprint('asleep', flush=True)\ntime.sleep(600)\n")
    try:
        demo.wait_for("Ctrl-C here ends the demo")
        demo.command("submit", str(script), "--gpus", "1")
        demo.command("submit", str(script), "--gpus", "2", "--time", "2d")
        log = tmp_path / "demo" / "home" / "jobs" / "1" / "1" / "log"
        until(lambda: log.exists() and "asleep" in log.read_text())
    finally:
        status = demo.interrupt()
    assert status == 0
    assert demo.processes() == {}
    assert "gone" in demo.printed


def until(reached: Callable[[], bool]) -> None:
    for _ in range(300):
        if reached():
            return
        time.sleep(0.05)
    raise AssertionError("never reached")
