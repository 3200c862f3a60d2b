"""What names of files and folders say of a dataset."""
