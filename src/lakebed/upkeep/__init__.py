"""Regular maintenance of a lake: building, sweeping, retention, checking and healing."""
