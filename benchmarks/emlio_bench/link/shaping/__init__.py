"""What a line does to packets: delay, rate, jitter, loss, and the bytes that it holds."""
