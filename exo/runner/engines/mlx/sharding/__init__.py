"""A model over several ranks: by layers (pipeline) or by slices of every layer (tensor)."""
