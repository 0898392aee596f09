"""Web pages over a lake: rendered on the server, and the same data as JSON at the same address."""
