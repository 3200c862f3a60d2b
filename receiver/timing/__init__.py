"""The times that a loader notes of its own work: decoding, waiting, and processor time."""
