"""The embedded engine: DataFusion, in this process, without a JVM. The only package that imports
it.
"""
