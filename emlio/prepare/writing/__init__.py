"""The parts of emlio.Writer: values, columns, the shards of one part, the finished dataset."""
