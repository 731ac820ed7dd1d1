"""What runs of experiments consist of: their records in the yard, metrics, captured facts, and charts."""
