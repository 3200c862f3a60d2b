"""The times that a loader notes of its own work: decoding, waiting, processor time; what they say."""
