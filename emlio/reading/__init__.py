"""Reading records from local shards in the order of a plan, for daemons and loaders."""
