"""The programs that read, in each system's own environment: they import nothing of this package unless they read with it."""
