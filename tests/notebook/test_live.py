"""When a job is shown alive, and what its view does, without a kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.notebook import live
from jupyter_gpupool.notebook.widget import JobView
from tests.faces import samples
from tests.faces.fake import FakeService, refusal


@pytest.fixture
def client(fake: FakeService) -> Iterator[Client]:
    connection = Connection(fake.url, pauses=())
    yield Client(connection)
    connection.close()


@pytest.fixture
def views(client: Client) -> Iterator[Any]:
    """Return a function that makes views; they are closed at the end."""
    made: list[JobView] = []

    def view(job: dict[str, Any]) -> JobView:
        made.append(JobView(client, job))
        return made[-1]

    yield view
    for each in made:
        each.close()


def test_without_ipywidgets_there_is_text_only(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "in_kernel", lambda: True)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.delitem(sys.modules, "jupyter_gpupool.notebook.widget")
    assert live.mimebundle(client, samples.running()) == {}


def test_outside_a_kernel_there_is_text_only(client: Client) -> None:
    assert not live.in_kernel()
    assert live.mimebundle(client, samples.running()) == {}


def test_one_job_has_one_live_view(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "in_kernel", lambda: True)
    first = live.mimebundle(client, samples.ended())[live.VIEW]["model_id"]
    earlier = live._views[7]
    assert live.mimebundle(client, samples.ended())[live.VIEW]["model_id"] != first
    assert earlier.comm is None
    live._views.pop(7).close()


def test_a_view_of_an_ended_job_shows_the_end_of_its_log_and_no_button(views: Any, fake: FakeService) -> None:
    log = "".join(f"line {number} <b>\n" for number in range(100)).encode()
    headers = {"X-Gpupool-Offset": "1", "X-Gpupool-Ended": "true"}
    fake.answers["GET jobs/7/logs"] = (200, log, headers)
    view = views(samples.ended("failed", name="<script>"))
    assert "line 99 &lt;b&gt;</pre>" in view._log.value
    assert "line 87 " not in view._log.value
    assert view._cancel.layout.display == "none"
    assert "&lt;script&gt;" in view._title.value
    assert "Finished with exit code 3" in view._note.value


def test_a_refused_cancel_is_said_in_the_view(views: Any, fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (200, samples.job())
    fake.answers["POST jobs/7/cancel"] = (409, refusal("conflict", "It is ending <already>."))
    view = views(samples.job())
    view._cancel.click()
    assert "It is ending &lt;already&gt;." in view._note.value
    assert not view._cancel.disabled


def test_a_view_of_a_job_that_is_gone_says_so(client: Client, fake: FakeService) -> None:
    fake.answers["GET jobs/7"] = (404, refusal("not_found", "There is no job 7."))
    with pytest.raises(PoolError, match="no job 7"):
        client.job(7)
