"""This machine's energy counters at five loads: beside the program perf, and as a calibration of the model."""
