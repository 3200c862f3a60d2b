"""Keys: who this host is, who may read from it, and which daemons it knows.

Covers: key pairs, the allow-list of clients, the list of known daemons, as values and as files. Does not cover: sockets that use
them, and asking for a key when somebody connects (the daemon and the loader do that).
"""
