"""What a licence asks of whoever publishes a converted drafter: which files and words have to travel with it."""
