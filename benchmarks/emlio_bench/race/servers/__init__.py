"""Servers at the storage end of a link."""
