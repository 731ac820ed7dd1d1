"""The values of jobs of every kind. They know neither AWS names nor where anything is stored."""
