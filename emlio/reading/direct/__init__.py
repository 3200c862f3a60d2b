"""Reading past the page cache: whether to, the engine, files, and the windows of block orders."""
