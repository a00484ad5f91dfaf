"""Where one service keeps its things, and how it was asked to run.

Owns: `ServiceConfig` and the paths that follow from it. Never: reading a policy or opening anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.home import Home

IDLE_EXIT_S = 15 * 60
SNAPSHOT_CAP_MIB = 100


@dataclass(frozen=True)
class ServiceConfig:
    """How to run one service.

    Attributes
    ----------
    home
        The folder of all state (`GPUPOOL_HOME`).
    simulate
        A simulated pool such as ``4x8x32GiB``; None = this machine's real cards.
    policy
        The administrator's policy file; None = ``policy.yaml`` in `home`.
    boot_id
        Identity of this boot of the machine; None = ask the kernel.
    self_started
        Whether a client started it: then it ends by itself `idle_exit_s` seconds after nothing is live.
    snapshot_cap_mib
        The largest code snapshot that is accepted.
    """

    home: Home
    simulate: str | None = None
    policy: Path | None = None
    boot_id: str | None = None
    self_started: bool = False
    idle_exit_s: float = IDLE_EXIT_S
    snapshot_cap_mib: int = SNAPSHOT_CAP_MIB

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, **overrides: Any) -> ServiceConfig:
        """Read `GPUPOOL_HOME`, `_SIMULATE`, `_POLICY` and `_BOOT_ID`; `overrides` that are not None win."""
        policy = environ.get("GPUPOOL_POLICY")
        found: dict[str, Any] = {
            "home": Home.of(environ),
            "simulate": environ.get("GPUPOOL_SIMULATE") or None,
            "policy": Path(policy).absolute() if policy else None,
            "boot_id": environ.get("GPUPOOL_BOOT_ID") or None,
        }
        found.update({name: value for name, value in overrides.items() if value is not None})
        return cls(**found)

    @property
    def policy_file(self) -> Path:
        """The file that is the truth about groups, quotas and partitions."""
        return self.policy or self.home.path / "policy.yaml"

    @property
    def policy_history(self) -> Path:
        """Every policy that was in force, one file each."""
        return self.home.path / "policy-history"

    @property
    def ledger_file(self) -> Path:
        """The database."""
        return self.home.path / "ledger.sqlite"

    @property
    def jobs(self) -> Path:
        """One folder per job."""
        return self.home.path / "jobs"

    @property
    def snapshots(self) -> Path:
        """Code snapshots, by owner and digest."""
        return self.home.path / "snapshots"

    @property
    def token_secret(self) -> Path:
        """What the tokens of jobs are made with."""
        return self.home.path / "job-tokens.key"

    @property
    def log_file(self) -> Path:
        """The service's own log."""
        return self.home.path / "service.log"
