"""
Admission webhooks: who is asked about which writes, what is sent and answered, and what comes of it.
"""
