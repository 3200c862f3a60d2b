"""What loaders, daemons and plans take of their hosts: one table of scenarios."""
