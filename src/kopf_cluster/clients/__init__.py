"""
Clients of the local cluster in the same process: without HTTP, but with the same rules as for all clients.
"""
