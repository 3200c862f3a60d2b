"""The formats of records that are served in place.

Covers: recognising a format among the files of a folder, the ranges of its records, and their
columns at the rank. Pure: files are read by functions that the caller gives. Does not cover:
folders and stored indexes (emlio.index), reading records in order to send them (emlio.reading).
"""
