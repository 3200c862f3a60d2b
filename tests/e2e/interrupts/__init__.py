"""Signals whose handlers raise, at any moment of the user's thread; run as `python -m tests.e2e.interrupts`."""
