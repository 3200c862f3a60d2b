"""The daemons' addresses, host names, paths and keys."""
