"""Where artifacts are published: an S3 bucket or a local folder, with the same keys and the same promises.

`opening.open_store` gives a store for an address, `probe.ready_store` one that was tested before use, `publish.publish`
writes files and commits them by a manifest.
"""
