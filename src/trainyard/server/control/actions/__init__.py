"""Rule actions: requested with a finding, carried out by a controller, and retried."""
