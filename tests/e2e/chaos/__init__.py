"""Training through faults, drawn from seeds and judged record by record (scripts/chaos)."""
