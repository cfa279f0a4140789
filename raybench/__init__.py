"""raybench measures how well training scales over devices, why, and what to change.

The folders are the stages of one pipeline: ``study`` (the command line) hands what was typed to ``commands``,
``spec`` reads the study, ``plan`` says which trials, ``driver`` asks for them stage by stage, ``launch``
starts the processes, ``worker`` measures on every rank, ``records`` stores what came, ``analysis`` turns
records into values and ``report`` draws those. CONTRIBUTING.md says where a change belongs.
"""

__version__ = "0.1.0"
