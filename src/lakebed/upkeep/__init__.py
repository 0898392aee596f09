"""What a lake needs again and again: building, sweeping, retention, checking and healing."""
