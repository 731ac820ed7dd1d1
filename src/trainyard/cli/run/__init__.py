"""`trainyard run`: its options, the plan that it prints, and the command."""
