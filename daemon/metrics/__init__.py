"""The metrics of a daemon, and its health for a supervisor."""
