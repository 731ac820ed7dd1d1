"""Commands for administrators: users, quotas, images and engines."""
