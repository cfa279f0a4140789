"""With which code a command ends."""

DONE, NOTHING_COMPLETED, WRONG_REQUEST, INTERRUPTED = 0, 1, 2, 130
SLOWER = 1  # of ``compare --fail-if-slower``
CANNOT_WRITE = 2  # a full disk or one that is gone: the request cannot be carried out there
