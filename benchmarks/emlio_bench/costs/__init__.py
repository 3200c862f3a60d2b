"""Costs of loaders, daemons and plans at their hosts: one table of scenarios."""
