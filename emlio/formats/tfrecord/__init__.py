"""TFRecord files: their names, mappings, frames and records."""
