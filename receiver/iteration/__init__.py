"""One pass over an epoch, and the user's position in it."""
