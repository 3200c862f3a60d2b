"""Helpers for the threads of a loader: wake-ups, promises, calls, and interrupts by signals."""
