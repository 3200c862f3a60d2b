"""Joules of this node: devices that count energy, and what is recorded, stored and told of them.

Counters are stored, power is derived. Every figure says from what it comes and whether it was measured, derived or
estimated; a value that is not there is None, never 0.
"""
