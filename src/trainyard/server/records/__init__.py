"""What the yard remembers: the contract, SQL behind it, and the migrations of its schema."""
