"""The race: one dataset, read by every system users have, over one link. Documented as `emlio-bench race`."""
