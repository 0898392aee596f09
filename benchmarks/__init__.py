"""Measurements of Lakebed against its targets and its peers; run them with `make bench`."""
