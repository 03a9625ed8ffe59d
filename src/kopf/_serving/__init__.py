"""Serving: HTTP servers that are open to any client, and that no client can exhaust."""
