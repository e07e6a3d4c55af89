"""What is known of drafters by name: for now, whose tokenizer a weights-only repository borrows."""
