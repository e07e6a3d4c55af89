"""The catalogue: which drafters there are, what family each is of, whom it pairs with, and its newest verdict."""
