"""`emlio-bench dlio`: accelerator utilisation as DLIO computes it, of its own loaders and of EMLIO."""
