"""The storage side of a race on another machine: its agent, and reaching it."""
