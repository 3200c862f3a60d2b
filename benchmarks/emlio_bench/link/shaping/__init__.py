"""The effect of a line on packets: delay, rate, jitter, loss; the bytes that it holds."""
