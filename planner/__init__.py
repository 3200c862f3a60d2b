"""Which record is at which place: values in, values out; no sockets, clocks, threads or files."""
