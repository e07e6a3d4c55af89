"""Signatures by a key file, in the form of the OpenSSF model signing specification (OMS)."""
