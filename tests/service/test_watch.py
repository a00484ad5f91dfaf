"""What troubles a pool is told to its administrators: when it comes, once a day, and when it is over."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.ledger.outbox import Message
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.service.remains import Remains
from jupyter_gpupool.service.watch import DAY_S, Watch
from tests.service.fake_engine import FakeEngine
from tests.service.receivers import Webhook

SITE = "partitions: {all: {gpus: ['*:*'], for: [job, session]}}\ngroups: {team: {quota: {gpus: 2}}}\n"


class Looked:
    """A watch over a pool that is as the test says."""

    def __init__(self, folder: Path) -> None:
        self.told: list[Message] = []
        self.free = 20 * 1024
        self.engine: Any = FakeEngine(folder)
        self.pool: Any = SimpleNamespace(
            pool=SimulatedPool(1, 2, 8192),
            policy=load_policy(SITE),
            policies=SimpleNamespace(error=None),
            trouble=None,
            health={"SIM-node1-0": "", "SIM-node1-1": ""},
            now=10 * DAY_S,
            ledger=SimpleNamespace(held=list),
        )
        nothing: Any = SimpleNamespace(on_cards=list)
        remains = Remains(self.pool, self.engine, nothing)
        self.watch = Watch(self.pool, self.engine, folder, self.told.append, remains, lambda path: self.free)

    def look(self) -> list[str]:
        """Return the subjects of what is told at a look."""
        before = len(self.told)
        asyncio.run(self.watch.look())
        assert all(message.user is None for message in self.told)
        return [message.subject for message in self.told[before:]]


@pytest.fixture
def looked(tmp_path: Path) -> Looked:
    return Looked(tmp_path)


def test_a_pool_without_trouble_says_nothing(looked: Looked) -> None:
    assert looked.look() == []


def test_a_lost_card_is_told_and_that_it_is_back(looked: Looked) -> None:
    looked.pool.health["SIM-node1-1"] = "GPU 1 is out of use: it has fallen off the bus."
    assert looked.look() == ["node1: GPU 1 is out of use: it has fallen off the bus"]
    looked.look()
    assert looked.told[0].key == looked.told[1].key  # of equal keys one is sent
    looked.pool.now += DAY_S
    looked.look()
    assert looked.told[2].key != looked.told[0].key
    looked.pool.health["SIM-node1-1"] = ""
    assert looked.look() == ["Over: node1: GPU 1 is out of use: it has fallen off the bus"]
    assert looked.look() == []
    looked.pool.health["SIM-node1-1"] = "GPU 1 is out of use: it has fallen off the bus."
    looked.look()
    assert looked.told[-1].key not in {message.key for message in looked.told[:-1]}


def test_a_disk_that_fills_up_is_told_before_it_is_full(looked: Looked) -> None:
    looked.free = 10 * 1024 - 1
    (subject,) = looked.look()
    assert "10 GiB left of the 10 GiB that must stay free" in subject


def test_a_service_that_cannot_work_is_told(looked: Looked) -> None:
    looked.pool.trouble = "The disk of the ledger is full."
    looked.pool.policies.error = "policy.yaml:3: notify.smtp: pass is not an address."
    looked.engine.deaf = True
    ledger, policy, engine = looked.look()
    assert (ledger, engine) == ("The disk of the ledger is full", "The launcher does not answer")
    assert "notify: It is wrong" in policy
    assert "pass" not in policy


def test_a_service_that_broke_down_says_so_when_it_is_back(spawn: Any, home: Any) -> None:
    webhook = Webhook()
    (home.path / "policy.yaml").write_text(
        f"{SITE}storage: {{min_free: 1MiB}}\nnotify: {{webhook: '{webhook.url}'}}\n"
    )
    service = spawn()
    service.kill()
    spawn()
    give_up = time.monotonic() + 20
    while not webhook.posts:
        assert time.monotonic() < give_up
        time.sleep(0.02)
    assert webhook.texts == ["The pool's service is back after it broke down"]
    webhook.close()
