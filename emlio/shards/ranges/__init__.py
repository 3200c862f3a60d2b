"""The index of records that are ranges of files or whole files, and their kept checksums."""
