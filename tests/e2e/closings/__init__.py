"""Loaders that close in mid-flow, thousands of times, at real daemons (python -m tests.e2e.closings)."""
