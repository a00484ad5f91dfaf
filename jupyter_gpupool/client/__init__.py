"""The pool as its users reach it: over HTTP, with nothing but the standard library of Python 3.9."""
