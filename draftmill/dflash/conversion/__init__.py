"""From any form of a DFlash draft to any other: Hugging Face folder, GGUF, FastFlowLM package.

A tensor either keeps what it holds bit for bit, or the account says what was done to it and what that cost.
"""
