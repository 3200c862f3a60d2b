"""The values of energy measurement: devices, counters, readings, series, and time spans."""
