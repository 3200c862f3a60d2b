"""What emlio.Writer is made of: values, columns, the shards of one part, the finished dataset."""
