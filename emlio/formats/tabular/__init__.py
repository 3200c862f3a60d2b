"""Tables in Parquet and Arrow files: their rows as they are sent, and reading them again at the rank."""
