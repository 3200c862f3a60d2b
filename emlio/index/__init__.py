"""Datasets on this host's disks.

Covers: finding, indexing, describing and verifying shards. Does not cover: reading records in order
to send them (emlio.reading).
"""
