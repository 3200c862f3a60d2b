"""A wide-area link on one machine.

Two network namespaces, a real TCP path between them, and a configured round trip.
"""
