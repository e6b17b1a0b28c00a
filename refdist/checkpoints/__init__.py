"""Checkpoints: variables in files, which are kept, found and read again, also when a job is preempted."""
