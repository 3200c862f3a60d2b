"""Encoding and decoding of messages. No sockets."""
