"""The receive thread, and the questions that other threads ask through it."""
