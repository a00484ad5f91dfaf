"""Where one service keeps its things, and how it was asked to run.

Owns: `ServiceConfig`, `HubConfig`, and the paths that follow from them. Never: reading a policy or opening
anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.names import PREFIX, SERVICE
from jupyter_gpupool.policy.model import Policy

IDLE_EXIT_S = 15 * 60
SNAPSHOT_CAP_MIB = 100


@dataclass(frozen=True)
class HubConfig:
    """The JupyterHub that a service belongs to.

    Attributes
    ----------
    api_url, api_token
        Where the Hub's API is, and the token of this service there.
    socket
        Where the service answers to the proxy, the spawner and the servers.
    base_url, prefix
        Under which address the Hub is, and this service; both begin and end with a slash.
    client_id, callback
        What the service is called when people log in to it, and where they come back to.
    authenticator
        The name of the Hub's authenticator class; empty if nobody said.
    demo
        Whether this is a demonstration, in which all users share one account.
    """

    api_url: str
    api_token: str = field(repr=False)
    socket: Path
    base_url: str = "/"
    prefix: str = f"{PREFIX}/"
    client_id: str = f"service-{SERVICE}"
    callback: str = f"{PREFIX}/oauth_callback"
    authenticator: str = ""
    demo: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], home: Home) -> HubConfig | None:
        """Read what the Hub, or an environment file, tells a service; None where no Hub does.

        A server of a Hub's user has a Hub's variables too, and is no service.

        Raises
        ------
        Refused
            There is no token.
        """
        file = environ.get("GPUPOOL_TOKEN_FILE")
        is_service = environ.get("JUPYTERHUB_SERVICE_NAME") or file
        if not (environ.get("JUPYTERHUB_API_URL") and is_service):
            return None
        base = _slashed(environ.get("JUPYTERHUB_BASE_URL", ""))
        prefix = _slashed(environ.get("JUPYTERHUB_SERVICE_PREFIX") or base.rstrip("/") + PREFIX)
        return cls(
            api_url=environ["JUPYTERHUB_API_URL"].rstrip("/"),
            api_token=_token(environ, file),
            socket=Path(environ.get("GPUPOOL_HUB_SOCKET") or home.hub_socket).absolute(),
            base_url=base,
            prefix=prefix,
            client_id=environ.get("JUPYTERHUB_CLIENT_ID") or cls.client_id,
            callback=environ.get("JUPYTERHUB_OAUTH_CALLBACK_URL") or f"{prefix}oauth_callback",
            authenticator=environ.get("GPUPOOL_HUB_AUTHENTICATOR", ""),
            demo=environ.get("GPUPOOL_DEMO") == "1",
        )


def _slashed(path: str) -> str:
    """Return a path that begins and ends with a slash."""
    return f"/{path.strip('/')}/" if path.strip("/") else "/"


def _token(environ: Mapping[str, str], file: str | None) -> str:
    hint = "The Hub passes it to a service that it starts; to others, GPUPOOL_TOKEN_FILE names its file."
    if not file:
        token = environ.get("JUPYTERHUB_API_TOKEN", "")
    else:
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(
                "invalid_option", f"The token file {file} cannot be read: {error}.", hint=hint
            ) from None
    if not token:
        raise Refused("invalid_option", "The service has no token of its own for the Hub.", hint=hint)
    return token


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
    hub
        The Hub whose service this is; None = the pool of whoever starts it.
    launcher
        The state folder of a launcher that root runs (`GPUPOOL_LAUNCHER`); None = the pool has its own.
    allow_root
        Whether the service may run as root.
    """

    home: Home
    simulate: str | None = None
    policy: Path | None = None
    boot_id: str | None = None
    self_started: bool = False
    idle_exit_s: float = IDLE_EXIT_S
    snapshot_cap_mib: int = SNAPSHOT_CAP_MIB
    hub: HubConfig | None = None
    launcher: Path | None = None
    allow_root: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, **overrides: Any) -> ServiceConfig:
        """Read `GPUPOOL_HOME`, `_SIMULATE`, `_POLICY`, `_BOOT_ID`, `_LAUNCHER`, and what a Hub says.

        `overrides` that are not None win.

        Raises
        ------
        Refused
            It is a Hub's service, and has no token.
        """
        policy, launcher = environ.get("GPUPOOL_POLICY"), environ.get("GPUPOOL_LAUNCHER")
        home = Home.of(environ)
        found: dict[str, Any] = {
            "home": home,
            "hub": HubConfig.from_environment(environ, home),
            "launcher": Path(launcher).absolute() if launcher else None,
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
    def engine_home(self) -> Path:
        """The folder of the launcher's state."""
        return self.launcher or self.home.path

    @property
    def jobs(self) -> Path:
        """One folder per job."""
        return self.engine_home / "jobs"

    @property
    def portable(self) -> Path:
        """What jobs of other interpreters import, where the accounts they run as can read it."""
        return self.engine_home / "portable"

    @property
    def snapshots(self) -> Path:
        """Code snapshots, by owner and digest."""
        return self.home.path / "snapshots"

    @property
    def sent_progress(self) -> Path:
        """What jobs have sent on how far they are, one file each."""
        return self.home.path / "progress"

    @property
    def token_secret(self) -> Path:
        """What the tokens of jobs are made with."""
        return self.home.path / "job-tokens.key"

    @property
    def log_file(self) -> Path:
        """The service's own log."""
        return self.home.path / "service.log"

    def as_users(self, policy: Policy) -> bool:
        """Whether work runs under the accounts of those who ask for it."""
        return self.hub is not None and policy.run_as == "user"
