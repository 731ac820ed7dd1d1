"""The search over everything, which opens with Ctrl K: jobs, pages and, for administrators, users and settings."""
