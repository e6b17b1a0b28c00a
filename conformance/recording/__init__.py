"""How the cases become data: examples are run on refdist, and what they do is written down as steps."""
