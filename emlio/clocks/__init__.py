"""The offset between this node's clock and another's, from requests and their answers."""
