"""The demo for newcomers: a lake with a live shop and a fleet of rings, and a short tour of the
operations on partitions.
"""
