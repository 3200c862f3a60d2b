"""Checks of a node's counters against other measurements, and calibration of processors."""
