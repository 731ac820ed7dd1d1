"""Training jobs on the client side: requests, handles, event streams, logs and outcomes."""
