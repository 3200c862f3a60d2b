"""Columns read from all records of a dataset, and predicates over them."""
