"""Network namespaces, the devices and TCP buffers in them, and their processes."""
