"""`emlio-bench formats`: datasets of several formats served in place."""
