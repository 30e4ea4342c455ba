"""The way in: connections, their limits, who may come in, and what an error looks like."""
