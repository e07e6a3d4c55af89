"""GGUF: bounded reading, conversion, quantizing, names and the check of a product."""
