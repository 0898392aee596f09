"""Who may use a lake from outside, and for what."""
