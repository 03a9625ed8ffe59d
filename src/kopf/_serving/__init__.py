"""Serving: HTTP servers that are open to everybody who can reach them, and are exhausted by nobody."""
