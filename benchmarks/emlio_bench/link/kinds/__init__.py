"""The kinds of links, each with its process: emulated, netem, relay."""
