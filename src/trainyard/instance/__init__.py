"""What runs on an instance: the agent, the sandbox around the training program, and what lives inside it."""
