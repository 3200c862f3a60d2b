"""The transports that benchmarks compare: EMLIO, the paper's method, and plain sockets."""
