"""How often intervals and verdicts are right, over hundreds of studies: part of benchmarks/long.sh.

Tests of the same name in tests/unit have a hundred repetitions or less, and fail where some 8% is lost.
"""
