"""
Trouble on demand: faults, and the endpoint to make them from other processes.
"""
