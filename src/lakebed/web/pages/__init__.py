"""The data of each page: a function that makes it from the lake, without HTML."""
