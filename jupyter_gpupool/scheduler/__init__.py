"""Who gets what next: pure functions over a snapshot; no clock, no I/O."""
