"""The counters and sensors of a node, and estimates where it has none."""
