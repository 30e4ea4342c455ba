"""What is there, by what people call it."""
