"""Work on a Ray cluster of two hosts, which are processes here."""
