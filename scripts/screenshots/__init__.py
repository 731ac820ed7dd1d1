"""Takes the pictures of the dashboard in docs/ and README.md: `python -m scripts.screenshots`."""
