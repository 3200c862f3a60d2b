"""Opening a dataset: choosing how, and one way for each kind of dataset."""
