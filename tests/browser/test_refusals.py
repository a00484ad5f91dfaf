"""What the sidebar says where there is no answer, and that it offers to start a service only where it can."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faces.unix import Answer, UnixService

PANEL = "#jupyter-gpupool\\:sidebar"
START = f"{PANEL} >> text=Start the pool"
PATIENCE = 60.0  # seconds for a Lab to start


def says(message: str, hint: str | None = None) -> dict[str, object]:
    return {"error": {"code": "forbidden", "message": message, "hint": hint}}


class FakeService(UnixService):
    """Gives one answer to all."""

    said = Answer({})

    def answer(self, call: object) -> Answer:
        return self.said


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakeService]:
    (tmp_path / "hub").mkdir(mode=0o755)
    found = FakeService(tmp_path / "hub" / "hub.sock")
    yield found
    found.end()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return a function that starts a JupyterLab with more in its environment, and returns its address."""
    options = ["--no-browser", "--allow-root", "--port=0", "--IdentityProvider.token=", "--LabApp.news_url="]
    log = tmp_path / "log"
    with ExitStack() as stack:

        def start(**environ: str) -> str:
            process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *options, f"--ServerApp.root_dir={tmp_path}"],
                env={
                    **os.environ,
                    "HOME": str(tmp_path),
                    "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
                    **environ,
                },
                stdout=stack.enter_context(open(log, "wb")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)
            record = tmp_path / "runtime" / f"jpserver-{process.pid}.json"
            deadline = time.monotonic() + PATIENCE
            while not record.exists():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            return json.loads(record.read_text())["url"]

        yield start


def open_sidebar(page, url: str) -> None:
    page.goto(f"{url}lab")
    page.locator('li[data-id="jupyter-gpupool:sidebar"]').click()


def test_under_a_hub_refusals_are_sentences_and_there_is_nothing_to_start(page, lab, service) -> None:
    url = f"{service.url}?uid={os.geteuid()}"
    service.said = Answer(says("You may not use this pool.", "Ask ada."), 403)
    open_sidebar(page, lab(GPUPOOL_URL=url, GPUPOOL_HUB_URL=url, JUPYTERHUB_API_TOKEN="t0ken"))
    page.wait_for_selector(f"{PANEL} >> text=You may not use this pool.")
    assert "Ask ada." in page.locator(PANEL).inner_text()
    assert page.locator(START).count() == 0
    for answer, words in (
        (Answer(b"", 401), "The pool does not know your token."),
        (Answer(says("The policy has a mistake in line 3."), 503), "The policy has a mistake in line 3."),
        (Answer(b"<h1>503</h1>", 503), "The pool's service does not answer."),
    ):
        service.said = answer
        page.get_by_label("Refresh the GPU pool").click()
        page.wait_for_selector(f"{PANEL} >> text={words}")
        assert page.locator(START).count() == 0
    assert {call.headers["Authorization"] for call in service.calls} == {"token t0ken"}


def test_a_service_of_ones_own_that_did_not_start_can_be_started_again(page, lab, tmp_path: Path) -> None:
    open_sidebar(page, lab(GPUPOOL_HOME=str(tmp_path / "home"), GPUPOOL_SIMULATE="nonsense"))
    page.wait_for_selector(f"{PANEL} >> text=did not start")
    page.locator(START).click()
    page.wait_for_selector(f"{PANEL} >> text=did not start")
