"""Reading ahead of the network, within the daemon's memory."""
