"""Commands that are a question to the pool and its answer: jobs, queue, quota, why, cancel, …

Owns: the step from the shared table of verbs to commands. Never: what a verb asks or says.
"""

from __future__ import annotations

from jupyter_gpupool.client.verbs import VERBS, Options, Verb
from jupyter_gpupool.commands import Command, answer, client_of


def _command(verb: Verb) -> Command:
    def run(options: Options) -> int:
        reply = verb.ask(client_of(options), options)
        answer(options, reply, verb.lines(reply))
        return 0

    return Command(run, verb.arguments)


def __getattr__(name: str) -> Command:
    """Return the command of a verb: ``JOBS`` is that of ``jobs``."""
    if name.lower() not in VERBS:
        raise AttributeError(name)
    return _command(VERBS[name.lower()])
