"""Datasets as they lie on this host's disks.

Covers: finding, indexing, describing and checking shards. Does not cover: reading records to send them
(emlio.reading).
"""
