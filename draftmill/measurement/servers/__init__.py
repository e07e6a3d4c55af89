"""llama-servers: which there are, how they are told, and how none outlives its block."""
