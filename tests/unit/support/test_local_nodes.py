"""What is said of nodes on one machine before any is made."""

import os
import shutil

import pytest

from tests.support import local_nodes
from tests.support.local_nodes import bits_per_s


@pytest.mark.parametrize(
    ("rate", "bits"), [("100mbit", 1e8), ("2.5gbit", 2.5e9), ("64kbit", 6.4e4), ("8bit", 8)]
)
def test_a_rate_is_read_as_tc_reads_it(rate, bits):
    assert bits_per_s(rate) == bits


@pytest.mark.parametrize("rate", ["fast", "100", "1gb"])
def test_a_rate_that_tc_does_not_know(rate):
    with pytest.raises(ValueError, match="a rate such as"):
        bits_per_s(rate)


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert local_nodes.missing() == "network namespaces need root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "tc" else tool)
    assert local_nodes.missing() == "tc not found (Debian: util-linux, iproute2)"
