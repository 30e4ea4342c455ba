"""The log explained: who did what, why, what changed, how much; and what would be decided otherwise today."""
