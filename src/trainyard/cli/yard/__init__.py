"""Commands for the yard itself: start, stop, watch, connect clients, back up and check."""
