"""The rules between the ranks of a job."""
