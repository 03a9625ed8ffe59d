"""Resources: which ones the cluster serves, and how they are listed, watched, and patched."""
