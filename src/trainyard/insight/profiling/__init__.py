"""What is concluded from the profile of a job: where the time goes, what limits it, and what to change."""
