"""Random programs, which are carried out on two implementations and compared."""
