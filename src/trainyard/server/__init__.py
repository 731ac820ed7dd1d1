"""The server process of a yard: it answers AWS calls and runs jobs."""
