"""Administration: users, quotas, storage, engines, settings and faults. Only administrators see it."""
