"""
HTTP: connections, and what is asked and answered; it knows nothing of what is stored.
"""
