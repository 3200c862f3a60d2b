"""The formats of records that are served in place."""
