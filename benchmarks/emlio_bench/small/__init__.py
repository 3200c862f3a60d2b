"""Benchmarks of one file each: examples, padding, the plan."""
