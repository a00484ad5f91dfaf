"""Whose work can run here is said before it is queued."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.service.accounts import account_for
from jupyter_gpupool.service.config import HubConfig, ServiceConfig
from jupyter_gpupool.service.errors import ApiError

HOME = Home(Path("/pool"))
HUB = ServiceConfig(HOME, hub=HubConfig("http://127.0.0.1/hub/api", "t", Path("/pool/hub/hub.sock")))


def ask(user: str, config: ServiceConfig, run_as: str) -> str | None:
    policy = load_policy(
        f"partitions: {{all: {{gpus: ['*:*'], for: [job]}}}}\ngroups: {{g: {{}}}}\nrun_as: {run_as}\n"
    )
    return asyncio.run(account_for(user, config, policy))


@pytest.mark.parametrize(
    ("user", "part"),
    [("root", "root's"), ("daemon", "below UID_MIN"), ("no such name", "no account"), ("a\0", "")],
)
def test_a_user_who_is_no_account_is_told(user: str, part: str) -> None:
    with pytest.raises(ApiError) as caught:
        ask(user, HUB, "user")
    assert (caught.value.status, caught.value.code) == (422, "no_account")
    assert part in caught.value.message


def test_where_all_work_is_one_accounts_nobody_is_asked() -> None:
    assert ask("no such name", HUB, "service") is None
    assert ask("no such name", ServiceConfig(HOME), "user") is None
