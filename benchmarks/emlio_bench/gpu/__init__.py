"""All that needs a GPU, in one go: the program behind scripts/gpu."""
