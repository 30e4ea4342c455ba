"""What Prometheus reads: what this process has counted, and what is so in the cluster now."""
