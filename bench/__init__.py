"""Measurements: one script a question. Every figure is a ratio against something measured in the same run."""
