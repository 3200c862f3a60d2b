"""The names in a dataset's folder, and what follows from them."""
