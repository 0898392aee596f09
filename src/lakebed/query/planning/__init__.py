"""The needs of a statement, and the content of its tables. Open `conditions` first."""
