"""The list of jobs of all kinds: filter, order, columns, groups, bulk changes, the queue, capacity and money."""
