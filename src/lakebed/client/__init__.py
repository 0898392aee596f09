"""A connection to a server of a lake: what an open lake answers, from anywhere."""
