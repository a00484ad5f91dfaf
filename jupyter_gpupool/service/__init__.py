"""The service: the one process that owns a pool's queue and answers its REST interface."""
