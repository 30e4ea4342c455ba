"""The cluster's own endpoints: health, State, events, instances, commands."""
