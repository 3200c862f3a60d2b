"""The storage side: reads, batches and pushes."""
