"""The formats of records that are served as they lie."""
