"""Q4NX containers, read and written: the header, the tile encodings, exact decoding and conversion to GGUF blocks.

Source of every layout: sections 2 and 3 of the format page (q4nx.md), put together from the vendor's converter and
independent readers; nothing here decodes by guess.
"""
