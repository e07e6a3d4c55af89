"""What speculation did: the raw record of its rounds, the regime it ran in, and the figures that follow from both."""
