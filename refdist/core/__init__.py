"""The semantics, without operations on arrays: the stack of contexts, the tables of rules, and lock step."""
