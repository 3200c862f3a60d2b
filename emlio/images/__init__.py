"""Encoded images, without decoding them."""
