"""JupyterHub's single-user server, up in half the time: ``python -P -m jupyter_gpupool.server.singleuser``.

Owns: putting off one import. jsonschema loads parsers for its formats ``iri`` and ``iri-reference``, which
take longer to build than all the rest of a server to load, and which hardly any server ever asks for; they
are built when one does. Never: anything else about the server.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PARSERS = "rfc3987_syntax"


class Postponed(ModuleType):
    """Stands for `PARSERS` until something of it is used."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec
        self.__file__ = spec.origin

    def is_valid_syntax(self, term: str, value: str) -> bool:
        """Say what the module itself says."""
        return bool(self._module().is_valid_syntax(term, value))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._module(), name)

    def _module(self) -> ModuleType:
        if sys.modules.get(PARSERS) is self:
            del sys.modules[PARSERS]
        return importlib.import_module(PARSERS)


def postpone() -> None:
    """Have the parsers imported when they are first used, where they are installed."""
    spec = None if PARSERS in sys.modules else importlib.util.find_spec(PARSERS)
    if spec is not None:
        sys.modules[PARSERS] = Postponed(spec)


def main() -> None:
    """Become the server; its arguments and environment are those of ``jupyterhub-singleuser``."""
    postpone()
    from jupyterhub.singleuser import main as serve

    serve()


if __name__ == "__main__":
    main()
