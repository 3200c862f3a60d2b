"""Benchmarks of EMLIO: its speed, the limits of the machine, and other systems."""
