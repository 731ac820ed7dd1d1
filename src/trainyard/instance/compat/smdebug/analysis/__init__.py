"""What rules and notebooks use beside trials."""
