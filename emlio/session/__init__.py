"""The conversation of one rank and one daemon as state machines: events in, instructions out. No sockets."""
