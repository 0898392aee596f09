"""The tables of a statement at one tick. Open `snapshot` first."""
