"""Keys: this host's identity, the clients that may read from it, and the daemons it knows.

Covers: key pairs, the allow-list of clients, the list of known daemons, as values and as files.
Does not cover: the sockets that use them, and checking a key on connection (the daemon and the
loader do that).
"""
