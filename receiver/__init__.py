"""The training side: receives, checks, places and hands out batches."""
