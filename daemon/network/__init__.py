"""The sockets of a daemon: the control port, the data port, and the admission of peers."""
