"""The GGUF form of a DFlash draft: llama.cpp's architecture `dflash`, both generations, read and written.

llama.cpp's converter (conversion/qwen.py, DFlashModel) is the definition of the form, src/models/dflash.cpp and
common/speculative.cpp say what is done with it.
"""
