"""Evaluating a race, and its report."""
