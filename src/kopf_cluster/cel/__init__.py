"""
Expressions in CEL, as in the rules of schemas and in the match conditions of webhooks.
"""
