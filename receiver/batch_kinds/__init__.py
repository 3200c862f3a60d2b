"""The kinds of batches: columns, raw records, samples, DALI's outputs, tokens."""
