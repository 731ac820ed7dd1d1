"""Resume drills: run a job's definition with and without an interruption, and say whether its script really resumes."""
