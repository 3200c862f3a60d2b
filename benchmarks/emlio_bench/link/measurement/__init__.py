"""Measurements of a link: round trip, throughput, and their comparison with the specification."""
