"""`emlio-bench formats`: datasets of several formats served as they lie."""
