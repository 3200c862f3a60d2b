"""The storage side of EMLIO: reads records and pushes batches to ranks."""
