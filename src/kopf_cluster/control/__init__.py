"""
Control loops: what the server does on its own after objects have changed.
"""
