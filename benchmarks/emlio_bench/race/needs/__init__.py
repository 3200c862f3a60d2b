"""Environments and programs of other systems."""
