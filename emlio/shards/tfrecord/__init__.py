"""TFRecord files: finding shards, their indexes and mappings, checking records."""
