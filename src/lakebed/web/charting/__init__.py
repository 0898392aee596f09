"""Data points as lines of charts, which templates draw."""
