"""Conversion of arrays, collectives, and the contracts of backends (hold arrays) and transports (carry them)."""
