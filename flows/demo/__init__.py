"""The demonstration: a real small model served by a hub on loopback, taken through the whole mill."""
