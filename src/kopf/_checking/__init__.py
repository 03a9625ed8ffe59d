"""What is wrong in an operator, found without a cluster: by its code, its declarations, its definitions."""
