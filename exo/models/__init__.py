"""Models as files: which there are, where each comes from, and how it becomes a folder that an engine loads."""
