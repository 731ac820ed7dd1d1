"""Resume drills: run a job with and without an interruption, and decide whether its script resumes."""
