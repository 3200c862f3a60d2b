"""The tuner: what a rank can set while it runs, what it sees of itself, and who decides."""
