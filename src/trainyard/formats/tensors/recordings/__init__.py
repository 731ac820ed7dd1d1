"""What a training records on disk, in our layout and in smdebug's: writing, indexing and reading it."""
