"""Records that several jobs need soon, read once for all: what their plans tell, what is kept, when sharing pauses."""
