"""Records of shards on this host's disks, in the order of a plan: what a daemon sends and what a loader reads by itself."""
