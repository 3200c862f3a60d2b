"""The energy of a job: its loaders' journals and its nodes' recordings, by epoch and stage."""
