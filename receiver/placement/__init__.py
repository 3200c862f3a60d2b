"""From messages in any order to complete batches, and the credit for messages ahead of the user."""
