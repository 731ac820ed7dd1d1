"""The log of a training job: a million lines, live, searchable, each with an address of its own."""
