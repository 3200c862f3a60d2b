"""Sockets to daemons: control connections and lanes."""
