"""
What a real API server refuses in objects of built-in kinds by the meaning of their fields, kind by kind.
"""
