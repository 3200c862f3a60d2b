"""The systems of the race: their description, and one file for each."""
