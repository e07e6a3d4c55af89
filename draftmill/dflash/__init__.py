"""DFlash drafts of both generations: what their config says, which tensors they have, and their packages."""
