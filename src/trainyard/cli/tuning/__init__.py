"""`trainyard tune` and the commands below it."""
