"""
Custom resources: their definitions, schemas, and conversion between versions.
"""
