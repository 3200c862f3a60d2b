"""Sending messages over the lanes of all ranks."""
