"""The records of a race, in every form, and the messages of those that read them."""
