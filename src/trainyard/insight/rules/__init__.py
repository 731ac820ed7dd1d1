"""Rules: what each looks for in a training, and what it says when it finds it."""
