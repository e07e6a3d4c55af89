"""Pages that people read, made from the JSON that machines read: self-contained HTML, every value escaped."""
