"""The dashboard: pages for a browser, rendered on the server, over the public API."""
