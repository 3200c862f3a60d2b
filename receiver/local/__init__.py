"""Shards on this host's own disks."""
