"""`emlio-bench memory`: memory of the daemon and of the rank."""
