"""Bytes to messages and back. No sockets."""
