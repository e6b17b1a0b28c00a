"""Real workers: one process each, connected by MPI."""
