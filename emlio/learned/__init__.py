"""Learned models at run time: trees evaluated with NumPy, with the range in which they were trained."""
