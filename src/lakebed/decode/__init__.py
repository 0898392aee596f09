"""From payload to Arrow: pure functions that run where the data lands, on Spark executors, and for
the fresh tail. Nothing here knows a catalog, a store or a session.
"""
