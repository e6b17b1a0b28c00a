"""Variables in files, kept, found and read again, also when a job is preempted."""
