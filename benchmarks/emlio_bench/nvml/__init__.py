"""The energy recorder beside NVML, read independently over the same time."""
