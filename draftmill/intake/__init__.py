"""What may enter the mill: a folder is looked at, never executed, before any tool sees it."""
