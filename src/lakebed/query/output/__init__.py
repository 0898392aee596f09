"""Rows and explanations for callers. Open `result` first."""
