"""Reading and writing files past the page cache, beside fio."""
