"""Records of a batch: their sizes, their columns, and bad records."""
