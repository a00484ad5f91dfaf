"""The one place that holds the version, and says which others go with it."""

__version__ = "0.1.0"


def goes_with(other: str) -> bool:
    """Tell whether another version means the same by the same words: it has the same minor version."""
    return other.split(".")[:2] == __version__.split(".")[:2]
