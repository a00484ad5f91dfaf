"""What is: cards, leases, jobs, sessions, promises and usage; the only code that writes the database."""

from jupyter_gpupool.ledger.errors import (
    IllegalTransition,
    InUse,
    LedgerError,
    LedgerUnavailable,
    Overbooked,
    UnknownId,
)
from jupyter_gpupool.ledger.records import (
    CardRecord,
    Job,
    JobState,
    LeaseRecord,
    LeaseState,
    NewJob,
    NewSession,
    SessionRecord,
    SessionState,
    StartOrder,
)
from jupyter_gpupool.ledger.store import Ledger

__all__ = [
    "CardRecord",
    "IllegalTransition",
    "InUse",
    "Job",
    "JobState",
    "LeaseRecord",
    "LeaseState",
    "Ledger",
    "LedgerError",
    "LedgerUnavailable",
    "NewJob",
    "NewSession",
    "Overbooked",
    "SessionRecord",
    "SessionState",
    "StartOrder",
    "UnknownId",
]
