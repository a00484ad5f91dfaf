"""Where work runs.

Owns: executing what is handed over and saying how it ended. Never: who runs next.
"""
