"""Which waiting job starts next and where: pure functions over values, for every kind of job."""
