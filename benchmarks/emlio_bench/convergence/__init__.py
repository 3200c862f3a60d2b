"""`emlio-bench convergence`: training with batches from different loaders."""
