"""The reading programs, one for each system, run in that system's own environment.

They import nothing of this package, except the program that reads with EMLIO.
"""
