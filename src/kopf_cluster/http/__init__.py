"""
HTTP: connections, requests, and answers; it knows nothing about the stored objects.
"""
