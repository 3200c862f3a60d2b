"""Keys: this host's identity, the clients that may read from it, and the daemons it knows."""
