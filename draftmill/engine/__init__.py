"""llama.cpp in a child process: what a product must load in, tokenize with and generate from.

`process.Engine` is the parent's side and the only thing other parts use. `child` is the process that holds the model,
`library` the few C functions of the xllamacpp wheel that it calls. C++ asserts end a process, so nothing here loads the
library into its caller.
"""
