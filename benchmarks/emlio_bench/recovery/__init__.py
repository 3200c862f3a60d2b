"""`emlio-bench recovery`: the time a rank waits when a daemon fails."""
