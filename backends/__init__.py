"""The backends that come with refdist, one file each.

A backend implements `refdist.backend.Backend`; a third party's is found through the entry points in the
group `refdist.backends`.
"""
