"""What all tests share: honest skips, a home of their own, and a check that nothing is left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("hunt", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

pytest_plugins = ["tests.conftest_accounts"]

REQUIRE_ALL = os.environ.get("GPUPOOL_REQUIRE_ALL") == "1"


def skip_or_fail(reason: str) -> None:
    """Skip the test with `reason`; where everything was promised to be there, fail instead."""
    if REQUIRE_ALL:
        pytest.fail(f"GPUPOOL_REQUIRE_ALL=1, but {reason}")
    pytest.skip(reason)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what cannot run here; `requires_server("chromium")` names a program that must be on PATH."""
    for marker in item.iter_markers("external"):
        pytest.skip(f"external: {marker.args[0] if marker.args else 'needs what no CI has'}")
    for marker in item.iter_markers("requires_server"):
        for program in marker.args:
            if shutil.which(program) is None:
                skip_or_fail(f"{program} is not installed (see .ci/run)")


@pytest.fixture
def require():
    """Return a function that skips (or, under GPUPOOL_REQUIRE_ALL=1, fails) with a reason."""
    return skip_or_fail


@pytest.fixture(autouse=True)
def _no_pool_of_the_developer(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tests never touch the pool, the policy or the settings of the person who runs them."""
    home: Path = tmp_path_factory.mktemp("gpupool-home")
    for name in (
        "GPUPOOL_URL",
        "GPUPOOL_HUB_URL",
        "GPUPOOL_TOKEN",
        "GPUPOOL_SIMULATE",
        "GPUPOOL_POLICY",
        "JUPYTERHUB_API_TOKEN",
        "GPUPOOL_BOOT_ID",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPUPOOL_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
