"""The control thread: sessions, questions and answers."""
