"""The strategies, one file each; `base` and `extended` hold what they share."""
