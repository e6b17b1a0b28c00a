"""The semantics without arrays: who is asking, the tables of rules, and how replicas run and meet."""
