"""Answers to questions about what this daemon is doing: `emlio status`, and its metrics."""
