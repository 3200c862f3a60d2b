"""Access control: which clients may connect, and the quota of each."""
