"""The systems that race, one file each."""
