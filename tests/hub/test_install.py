"""`jupyter gpupool install workstation` in a system of the test's own, and the files it installs."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.commands.install import workstation
from jupyter_gpupool.commands.ready import ready_files
from jupyter_gpupool.engines.local import identity
from jupyter_gpupool.hub import place
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.service.config import HubConfig
from jupyter_gpupool.spawner import GpuPoolLocalSpawner

READY = ready_files("workstation")
UNITS = ("jupyterhub.service", "gpupool.service", "gpupool-launcher.service")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes accounts")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A system that has accounts and nothing else."""
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (etc / "group").write_text("root:x:0:\n")
    for name in ("shadow", "gshadow"):
        (etc / name).write_text("")
    shutil.copy("/etc/login.defs", etc)
    return tmp_path


def install(root: Path) -> dict[str, str]:
    """Install, and return what was done about each thing below `root`."""
    return {step.what.removeprefix(f"{root}/"): step.done for step in workstation(root)}


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"


@needs_root
def test_a_bare_system_gets_account_folders_token_and_files(root: Path):
    done = install(root)
    assert set(done.values()) == {"made"}
    (line,) = [line for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("gpupool:")]
    _, _, uid, gid, _, home, shell = line.split(":")
    assert 0 < int(uid) < identity.uid_min(), "no user's job or server can ever run as it"
    assert (home, shell) == ("/var/lib/gpupool/service", "/usr/sbin/nologin")
    state = root / "var/lib/gpupool"
    assert {name: mode(state / name) for name in ("", "launcher", "service", "hub-token")} == {
        "": "0711",
        "launcher": "0711",
        "service": "0711",
        "hub-token": "0640",
    }
    assert (state / "service").stat().st_uid == int(uid)
    assert (state / "launcher").stat().st_uid == 0
    assert ((state / "hub-token").stat().st_uid, (state / "hub-token").stat().st_gid) == (0, int(gid))
    assert len((state / "hub-token").read_text().strip()) == 64
    assert mode(root / "var/lib/jupyterhub") == "0700"
    assert (state / "service" / "policy.yaml").stat().st_uid == int(uid)
    assert (root / "etc/jupyterhub/jupyterhub_config.py").stat().st_uid == 0


@needs_root
def test_again_it_keeps_all_and_says_what_is_the_sites_own(root: Path):
    install(root)
    token = (root / "var/lib/gpupool/hub-token").read_text()
    changed = root / "etc/jupyterhub/jupyterhub_config.py"
    changed.write_text("# the site's own\n")
    steps = {step.what: step for step in workstation(root)}
    assert {step.done for step in steps.values()} == {"kept"}
    assert changed.read_text() == "# the site's own\n"
    assert "yours; this version's is" in str(steps[str(changed)])
    assert [what for what, step in steps.items() if step.note] == [str(changed)]
    assert (root / "var/lib/gpupool/hub-token").read_text() == token


@needs_root
def test_a_link_that_somebody_left_is_not_followed(root: Path):
    install(root)
    policy = root / "var/lib/gpupool/service/policy.yaml"
    policy.unlink()
    policy.symlink_to(root / "etc/elsewhere")
    install(root)
    assert not (root / "etc/elsewhere").exists()


@needs_root
def test_what_is_no_system_is_left_alone(tmp_path: Path):
    with pytest.raises(Refused, match="is no system"):
        install(tmp_path)
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_the_command_says_what_it_did_and_what_is_next(root: Path):
    command = [sys.executable, "-m", "jupyter_gpupool.app", "install", "workstation", "--root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"made  {root}/etc/systemd/system/gpupool.service\n" in done.stdout
    assert "systemctl enable --now gpupool-launcher gpupool jupyterhub\n" in done.stdout


def test_others_than_root_are_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    from jupyter_gpupool.app import main

    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert main(["install", "workstation"]) == 2
    assert "Only root can make accounts" in capsys.readouterr().err


# -- the files --------------------------------------------------------------------------------------


@needs_root
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_accepts_the_units(root: Path):
    install(root)
    units = [str(root / "etc/systemd/system" / unit) for unit in UNITS]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


def settings(unit: str) -> list[tuple[str, str]]:
    lines = (READY / unit).read_text().splitlines()
    return [(name, value) for name, _, value in (line.partition("=") for line in lines) if value]


def test_jobs_and_servers_outlive_the_launcher_and_one_that_runs_out_of_memory():
    found = dict(settings("gpupool-launcher.service"))
    assert (found["KillMode"], found["OOMPolicy"], found["Delegate"]) == ("process", "continue", "yes")


def test_units_policy_and_configuration_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """What the Hub expects of the service is what the unit tells it."""
    c = ready_configuration(monkeypatch, tmp_path)
    environ = dict(
        value.split("=", 1) for name, value in settings("gpupool.service") if name == "Environment"
    )
    launcher = dict(settings("gpupool-launcher.service"))["ExecStart"]
    (service,) = [spec for spec in c.JupyterHub.services if spec["name"] == "gpupool"]
    token = tmp_path / "token"
    assert environ["GPUPOOL_TOKEN_FILE"] == "/var/lib/gpupool/hub-token"
    hub = HubConfig.from_environment({**environ, "GPUPOOL_TOKEN_FILE": str(token)}, Home.of(environ))
    assert hub is not None
    assert hub.api_token == service["api_token"]
    assert hub.callback == service["oauth_redirect_uri"]
    assert hub.api_url == f"{c.JupyterHub.hub_bind_url}/hub/api"
    assert c.GpuPoolMixin.pool_url.startswith(f"unix:{hub.socket}?uid=")
    assert c.LauncherSpawner.launcher_home == environ["GPUPOOL_LAUNCHER"]
    assert f"--state {environ['GPUPOOL_LAUNCHER']} " in launcher
    assert launcher.endswith(f"--snapshots {environ['GPUPOOL_HOME']}/snapshots")
    assert c.JupyterHub.spawner_class is GpuPoolLocalSpawner
    assert hub.authenticator == "PAMAuthenticator"


def test_no_user_can_listen_where_the_hub_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    c = ready_configuration(monkeypatch, tmp_path)
    urls = (c.JupyterHub.bind_url, c.JupyterHub.hub_bind_url, c.ConfigurableHTTPProxy.api_url)
    assert all(int(url.rpartition(":")[2]) < 1024 for url in urls)
    assert c.JupyterHub.bind_url.startswith("http://127.0.0.1:"), "without a certificate, no password leaves"
    assert c.JupyterHub.cleanup_servers is False


def test_the_machines_groups_become_the_hubs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    c = ready_configuration(monkeypatch, tmp_path)
    login = c.Authenticator.post_auth_hook(None, None, {"name": "root"})
    assert "root" in login["groups"]


def test_the_policy_is_good_and_runs_work_as_its_users():
    found = load_policy((READY / "policy.yaml").read_text())
    assert found.run_as == "user"
    assert found.default_group in found.groups


def ready_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Config:
    """Load the configuration as the Hub would, where the account and the token are there."""
    token = tmp_path / "token"
    token.write_text("t" * 32)
    token.chmod(0o600)
    monkeypatch.setattr(place, "service_account", lambda name, demo: place.ServiceAccount(name, 990, 990))
    text = (READY / "jupyterhub_config.py").read_text().replace("/var/lib/gpupool/hub-token", str(token))
    c = Config()
    exec(compile(text, "jupyterhub_config.py", "exec"), {"get_config": lambda: c})
    return c
