"""Waiting for the ends of jobs while somebody watches.

Owns: which changes are worth a line. Never: printing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.phrases import standing
from jupyter_gpupool.client.tasks import JobName, label, title
from jupyter_gpupool.client.text import plain

Json = Mapping[str, Any]


def await_ends(client: Client, jobs: Sequence[JobName], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Wait until all `jobs` have ended and return them.

    Parameters
    ----------
    say
        Called with a line whenever a job has another state or waits for another reason; progress alone
        is no news.
    """
    told: dict[str, tuple[str, str | None]] = {}

    def tell(job: Json) -> None:
        news = job["state"], (job["waiting"] or {}).get("reason")
        if told.get(label(job)) != news:
            told[label(job)] = news
            say(plain(f"{title(job)}: {standing(job)}"))

    return client.wait(jobs, on_event=tell)
