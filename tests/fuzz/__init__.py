"""Fuzzing of everything that reads bytes from elsewhere: see scripts/fuzz --help."""
