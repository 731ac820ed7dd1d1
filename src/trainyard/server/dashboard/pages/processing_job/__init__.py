"""The page of one processing job."""
