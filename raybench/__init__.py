"""raybench measures how well training scales over devices, why, and what to change.

The folders are the stages of one pipeline: ``study`` (the command line) reads a study with ``spec``,
``plan`` and ``search`` say which trials, ``launch`` runs them on ``worker`` processes, ``record`` and
``store`` keep what came out, ``analysis`` turns records into values and ``report`` draws those.
"""

__version__ = "0.1.0"
