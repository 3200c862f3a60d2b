"""Batches of tokens."""
