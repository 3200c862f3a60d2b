"""The recorder of a node: it reads all counters on a schedule and stores the readings."""
