"""The processes of a benchmark: starting them, reading their messages, ending them."""
