"""One thing that reads foreign bytes in each file."""
