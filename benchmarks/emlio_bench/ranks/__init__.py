"""The cost of many ranks to one daemon, with light clients in a few processes."""
