"""``python -m tests.ray.of_another_version ARGUMENTS``: raybench, to which Ray looks like another release."""

from __future__ import annotations

import ray._private.utils

from raybench import study

VERSIONS = ("2.59.0", "3.10.9")  # of Ray, of Python

ray._private.utils.compute_version_info = lambda: VERSIONS

if __name__ == "__main__":
    study.main()
