"""Energy of this node: counters, recordings and reports.

Counters are stored; power is derived from them. Every figure says where it comes from and whether
it was measured, derived or estimated. A missing value is None, never 0.
"""
