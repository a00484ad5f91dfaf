"""What the pool is called on a JupyterHub: its service, the address of that, and the scopes of its users.

Owns: these names. Never: what a scope permits (the service says that), or who holds it (the Hub).
"""

from __future__ import annotations

SERVICE = "gpupool"
PREFIX = f"/services/{SERVICE}"
"""The path of the service, on its sockets and, after the Hub's own, behind the Hub."""

ACCESS = f"access:services!service={SERVICE}"
SUBMIT = "custom:gpupool:submit"
MANAGE = "custom:gpupool:manage"
READ_ALL = "custom:gpupool:read:all"
ADMIN = "custom:gpupool:admin"
SPAWN = "custom:gpupool:spawn"
