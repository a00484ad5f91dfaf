"""Configurations in which one user of a Hub could be another.

Owns: which are refused, and the sentence that says what to do. Never: looking anything up.
"""

from __future__ import annotations

from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.policy.problems import Finding, Problem
from jupyter_gpupool.service.config import ServiceConfig

ANYBODY = "DummyAuthenticator"


def unsafe_account(config: ServiceConfig, uid: int) -> str | None:
    """Say why a Hub's service must not run under this uid."""
    if uid == 0 and not config.allow_root:
        return (
            "The pool's service runs as root, and need not: give it an account of its own "
            "(setup(c, service_user=…)), or add --allow-root."
        )
    return None


def unsafe_policy(config: ServiceConfig, uid: int, policy: Policy) -> list[Problem]:
    """Return why a service of this uid must not follow a policy under its Hub, if it has one."""
    hub = config.hub
    if hub is None:
        return []
    if policy.run_as == "service" and not hub.demo:
        return [
            _problem(
                policy,
                "under a Hub, everybody's work would run as one account, which can read all files.",
                "Write `run_as: user`, with a launcher that root runs; a demonstration sets GPUPOOL_DEMO=1.",
            )
        ]
    if policy.run_as == "user" and hub.authenticator.rpartition(".")[2] == ANYBODY:
        return [
            _problem(
                policy,
                f"with {ANYBODY} anybody could log in as any account of this machine.",
                "Choose another authenticator, PAM for example.",
            )
        ]
    if policy.run_as == "user" and config.launcher is None and uid != 0:
        return [
            _problem(
                policy,
                "only a launcher that root runs can run work as somebody else, and this service has none.",
                "Start one, and name its folder with GPUPOOL_LAUNCHER.",
            )
        ]
    return []


def unsafe_launcher(config: ServiceConfig, policy: Policy, *, root: bool) -> str | None:
    """Say why work cannot run under its users' accounts with this launcher; None if it can."""
    if root or not config.as_users(policy):
        return None
    return (
        f"The policy says run_as: user, but the launcher in {config.engine_home} is not root's, and can run "
        "nothing as somebody else. Start root's (systemctl start gpupool-launcher) and name its folder with "
        "GPUPOOL_LAUNCHER."
    )


def _problem(policy: Policy, message: str, remedy: str) -> Problem:
    return policy.source.problem(Finding(("run_as",), message, remedy))
