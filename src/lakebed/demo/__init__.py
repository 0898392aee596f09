"""What newcomers see first: a lake with a shop and a fleet of rings that live, and a short tour of
what can happen to partitions.
"""
