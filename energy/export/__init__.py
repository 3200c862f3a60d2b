"""Recordings in other formats: CSV, Parquet, InfluxDB."""
