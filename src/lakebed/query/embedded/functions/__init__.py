"""The lake's functions in SQL. Open `calls` first."""
