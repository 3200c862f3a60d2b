"""Files of records: scanning, indexing, describing and reading them."""
