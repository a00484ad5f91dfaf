"""Numbers for Prometheus, counted from the ledger when asked.

Owns: the names, all with the prefix ``gpupool_``. Users are no labels: they are many, and nobody's business.
Never: a counter of its own that could disagree with the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from jupyter_gpupool.ledger.records import JobState
from jupyter_gpupool.service.core import Service

CONTENT_TYPE = CONTENT_TYPE_LATEST


def scrape(service: Service) -> bytes:
    """Return the service's numbers in Prometheus's text form."""
    registry = CollectorRegistry()
    registry.register(_Collector(service))
    return generate_latest(registry)


class _Collector:
    def __init__(self, service: Service):
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Count."""
        service = self._service
        held = service.ledger.held()
        states = Counter(job.state for job in service.ledger.jobs.values())
        jobs = GaugeMetricFamily("gpupool_jobs", "Jobs kept in the ledger, by state.", labels=["state"])
        for state in JobState:
            jobs.add_metric([state.value], states[state])
        yield jobs
        leases = GaugeMetricFamily("gpupool_leases", "Leases that are not free, by kind.", labels=["kind"])
        for kind in ("job", "session"):
            leases.add_metric([kind], sum(1 for lease in held if lease.kind == kind))
        yield leases
        used = Counter[str]()
        for lease in held:
            used[lease.group] += lease.placement.gpu_milli
        gpus = GaugeMetricFamily("gpupool_group_gpus", "GPUs held, by group.", labels=["group"])
        owed = GaugeMetricFamily("gpupool_group_quota_gpus", "GPUs owed, by group.", labels=["group"])
        for name, group in service.policy.groups.items():
            gpus.add_metric([name], used[name] / 1000)
            if (quota := group.quota.gpus) is not None:
                owed.add_metric([name], quota / 1000)
        yield gpus
        yield owed
        cards = service.controller.health
        yield GaugeMetricFamily("gpupool_gpus", "GPUs of the pool.", len(cards))
        yield GaugeMetricFamily(
            "gpupool_gpus_unavailable", "GPUs out of use.", sum(map(bool, cards.values()))
        )
        yield GaugeMetricFamily(
            "gpupool_plan_seconds", "How long the last plan took.", service.controller.plan_seconds
        )
        yield GaugeMetricFamily(
            "gpupool_policy_valid", "1 while the policy file is good.", float(service.policies.error is None)
        )
