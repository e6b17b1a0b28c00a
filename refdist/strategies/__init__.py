"""What knows strategies and replicas: one file per strategy, and what they share."""
