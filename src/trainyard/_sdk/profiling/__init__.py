"""The profiler on the client side: what a job is asked to profile, and what notebooks read and draw of it."""
