"""The one limit that is not the subject of a test."""

# Seconds after which what a test waits for is taken to hang.  A test that passes never waits as long: it waits for an
# event, mostly the end of a process, which takes seconds on an idle machine and a minute beside fifteen busy processes.
HANG = 300.0
