"""Arrays: what holds them (the contract of backends), how they are converted and combined."""
