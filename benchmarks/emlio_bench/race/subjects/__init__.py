"""The systems of the race, one file each."""
