"""`jupyter gpupool launcher`: what it checks before root listens to a service."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpupool.app import main
from jupyter_gpupool.engines.local import daemon


@pytest.fixture
def command(capsys, monkeypatch, open_folder):
    """Run the command over a state folder of root's; `stand` only notes what it was told."""
    told = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(daemon, "stand", lambda state, trust, ready: (told.append((state, trust)), ready()))

    def run(state: Path = open_folder / "launcher", user: str = "root") -> tuple[int, str, str, list]:
        words = ["--state", str(state), "--service-user", user, "--snapshots", str(open_folder / "snapshots")]
        code = main(["launcher", *words])
        return code, *capsys.readouterr(), told

    return run


def test_only_root_starts_it(command, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, _, said, told = command()
    assert (code, told) == (2, [])
    assert said.startswith("Only root can start the system's launcher.")


@pytest.mark.parametrize("name", ["nobody-here", "", "0"])
def test_the_services_account_must_be_there(roots_own, command, name):
    code, _, said, told = command(user=name)
    assert (code, told) == (2, [])
    assert "has no account" in said
    assert "useradd --system" in said


@pytest.fixture
def roots_own():
    if os.getuid() != 0:
        pytest.skip("only root has folders of root's")


def test_what_it_is_told(roots_own, command, open_folder):
    code, said, _, told = command()
    state = open_folder / "launcher"
    ((where, trust),) = told
    assert (code, where) == (None, state)  # the real one does not return
    assert (trust.uid, trust.jobs, trust.snapshots) == (0, state / "jobs", open_folder / "snapshots")
    assert said == f"The launcher for the account root listens in {state}.\n"
    assert (state / "portable").stat().st_mode & 0o777 == 0o755
    assert (state / "portable" / "gpupool_job.py").exists()


@pytest.mark.parametrize("what", ["owner", "mode", "link"])
@pytest.mark.parametrize("where", ["state", "above"])
def test_a_folder_that_another_account_could_replace(roots_own, command, open_folder, what, where):
    above = open_folder / "above"
    state = above / "launcher"
    path = state if where == "state" else above
    if what == "link":
        real = open_folder / "real"
        (real / "launcher").mkdir(parents=True)
        os.chown(real, 12345, -1)
        above.mkdir()
        if where == "above":
            above.rmdir()
            above.symlink_to(real)
        else:
            state.symlink_to(real)
    else:
        state.mkdir(parents=True)
        os.chown(path, 12345 if what == "owner" else 0, -1)
        path.chmod(0o755 if what == "owner" else 0o775)
    code, _, said, told = command(state=state)
    assert (code, told) == (1, [])
    assert "is not root's alone to write" in said
    assert "chown root" in said


def test_a_launcher_that_cannot_start_says_why(roots_own, command, monkeypatch):
    def refuse(state, trust, ready):
        raise daemon.AnotherLauncherError("another one holds this home")

    monkeypatch.setattr(daemon, "stand", refuse)
    code, _, said, _ = command()
    assert (code, said) == (1, "The launcher cannot start: another one holds this home.\n")
