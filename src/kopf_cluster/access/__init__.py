"""
Authentication and authorization: certificates, tokens, impersonation, roles, and their reviews.
"""
