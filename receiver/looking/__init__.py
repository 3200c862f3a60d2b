"""Looking at single records by number, beside streams or without any."""
