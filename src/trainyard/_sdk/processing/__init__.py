"""Processing jobs of the SDK: their requests, and handles on them."""
