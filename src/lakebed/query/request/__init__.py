"""A statement with its options and parameters, and the limits of its size. Open `request` first."""
