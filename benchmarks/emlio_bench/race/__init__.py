"""`emlio-bench race`: one dataset, read by every system under test, over one link."""
