"""Whose tokenizer is it: reading, identity, pairing and borrowing of vocabularies."""
