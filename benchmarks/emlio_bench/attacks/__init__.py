"""`emlio-bench attacks`: the speed of a legitimate rank while its daemon is under attack."""
