"""Objects in buckets as the files of a dataset."""
