"""The lineage as the records store it: entities, what is recorded of jobs, and the nodes that ARNs name."""
