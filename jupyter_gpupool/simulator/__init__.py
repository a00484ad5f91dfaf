"""The same scheduler on a virtual clock: what a policy would do with a workload."""
