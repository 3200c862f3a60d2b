"""The datasets that a daemon serves, and checks of their files."""
