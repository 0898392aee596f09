"""A connection to a server of a lake, with the interface of an open lake."""
