"""Records in the lineage what ended jobs read and wrote, and what was registered."""
