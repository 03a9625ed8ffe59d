"""
The Kubernetes API as a function from requests to answers.
"""
