"""The yard's process: it parses, checks and answers AWS calls, and moves jobs."""
