"""`/v1/responses`: answers as items, kept for an hour."""
