"""Columns of a dataset's records, and predicates over them."""
