"""`emlio-bench decode`: image decoding behind EMLIO, DALI's reader and PyTorch's DataLoader."""
