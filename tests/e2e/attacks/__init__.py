"""Attacks on a daemon, each a test: what an attacker gets, what he costs, what the others notice of him."""
