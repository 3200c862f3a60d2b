"""The figures of daemons, jobs and ranks, and who holds up whom: for the command line, the daemon's page and loaders."""
