"""What a shell completes: commands, options and files by click, and the names of a yard."""
