"""Datasets on this host's disks."""
