"""The semantics without arrays: the stack of contexts, the tables of rules, and lock step."""
