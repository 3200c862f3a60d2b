"""Epochs that mix the records of several datasets in given proportions."""
