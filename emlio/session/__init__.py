"""State machines of the session between a rank and a daemon: events in, instructions out.

No sockets.
"""
