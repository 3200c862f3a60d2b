"""The contents of synthetic datasets, and their form as plain files."""
