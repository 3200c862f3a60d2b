"""`emlio-bench delivery`: throughput compared with the machine's limits and the paper's method."""
