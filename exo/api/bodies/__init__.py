"""What requests are made of, whichever API they are of, and the document that describes it."""
