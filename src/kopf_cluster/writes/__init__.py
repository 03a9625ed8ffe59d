"""
Writes: creations, updates, patches, applying, deletions, and whose fields they are.
"""
