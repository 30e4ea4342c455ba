"""What a model keeps of a prompt, in a form that belongs to no engine, and its way from one runner to another."""
