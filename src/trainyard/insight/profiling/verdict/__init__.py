"""What limits a job, what to change, what that will gain, and what a step costs."""
