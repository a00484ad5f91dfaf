"""The pool under a JupyterHub: one line in its configuration.

Owns: `setup`. Never: what the pool decides; that is the service's.
"""

from jupyter_gpupool.hub.configuration import setup

__all__ = ["setup"]
