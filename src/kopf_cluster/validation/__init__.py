"""
Validation of built-in kinds, as in a real API server: by the meaning of their fields, kind by kind.
"""
