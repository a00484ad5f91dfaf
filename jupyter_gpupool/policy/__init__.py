"""What the administrator says: groups, quotas, partitions, calendars.

Import the modules, not this package: `units` needs nothing but the standard library.
"""
