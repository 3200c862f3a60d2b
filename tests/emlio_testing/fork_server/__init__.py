"""A process that has imported what the tests' processes need, and forks them."""
