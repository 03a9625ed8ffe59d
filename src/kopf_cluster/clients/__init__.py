"""
The objects of a local cluster in the hands of its users: no HTTP, but the same rules as for everybody else.
"""
