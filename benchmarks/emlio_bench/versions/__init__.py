"""Two versions of this package, measured in turns.

The version that a process runs, and a rank that works with any version.
"""
