"""Mounts read through faults, drawn from seeds, every byte compared (scripts/chaos mounts)."""
