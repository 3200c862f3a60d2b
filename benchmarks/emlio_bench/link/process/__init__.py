"""The process of a link: its messages, its signals, its real-time behaviour."""
