"""What each page shows: a function that makes its data from the lake, and nothing about HTML."""
