"""The plan: which record is at which place. Pure: no sockets, clocks, threads or files."""
