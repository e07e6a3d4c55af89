"""From a name to verified files: references, pinned listings, hashed downloads, and a small hub for closed networks."""
