"""`emlio-bench pace`: the cost of reading ahead at full speed or only as needed."""
