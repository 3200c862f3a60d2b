"""Making batches: decoding, transforms, and the queue from which the user takes them."""
