"""The backends and transports that come with refdist, one folder each.

A backend implements `refdist.array.backend.Backend`; a third party's is found through the entry points in the
group `refdist.backends`.
"""
