"""Plain values that every stage shares; no I/O happens here."""
