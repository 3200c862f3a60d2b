"""DALI pipelines fed by the loader."""
