"""`emlio-bench start`: the time from the constructor to the first batch."""
