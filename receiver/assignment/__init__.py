"""The assignment of shards to daemons, and the agreement between ranks and daemons."""
