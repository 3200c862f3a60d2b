"""Files of a folder that are open: limits, mappings, leases, slices that are lent."""
