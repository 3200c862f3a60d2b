"""Attackers of a daemon: strangers without a key, insiders with one."""
