"""
Objects in Kubernetes' binary form: protobuf ↔ the same objects as in JSON.

See "Kubernetes Protobuf encoding" of the Kubernetes "API Concepts". The messages are in ``data/``, made by
``tools/generate_messages.py``; nothing is loaded before somebody speaks protobuf.
"""
