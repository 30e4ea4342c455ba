"""What becomes of a request for tokens: generations started, read in order, and sent as a body or a stream."""
