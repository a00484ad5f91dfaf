from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from jupyter_gpupool.policy.load import PolicyError, Problem, load_policy
from jupyter_gpupool.policy.model import Policy


@dataclass(frozen=True)
class Card:
    node: str
    index: int
    memory_mib: int = 32 * 1024
    model: str = "A100"

    @property
    def uuid(self) -> str:
        return f"SIM-{self.node}-{self.index}"


@dataclass(frozen=True)
class Host:
    name: str
    cpus_milli: int
    memory_mib: int


PARTITIONS = 'partitions: {all: {gpus: ["*:*"], for: [session, job]}}\n'
GROUPS = "groups: {team: {quota: {gpus: 4}}}\n"


@pytest.fixture(scope="session")
def card() -> type[Card]:
    return Card


@pytest.fixture(scope="session")
def host() -> type[Host]:
    return Host


@pytest.fixture
def policy() -> Callable[[str], Policy]:
    """Load a policy of which only some keys are given."""

    def load(text: str = "") -> Policy:
        keys = {line.split(":")[0] for line in text.splitlines()}
        return load_policy(
            text + ("" if "partitions" in keys else PARTITIONS) + ("" if "groups" in keys else GROUPS)
        )

    return load


@pytest.fixture
def problems(policy: Callable[[str], Policy]) -> Callable[[str], list[Problem]]:
    """Return what is wrong with a policy of which only some keys are given."""

    def load(text: str) -> list[Problem]:
        with pytest.raises(PolicyError) as caught:
            policy(text)
        return caught.value.problems

    return load
