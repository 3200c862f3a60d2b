"""Answers to those who ask what this daemon is doing: `emlio status`, and its metrics."""
