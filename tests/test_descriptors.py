"""File descriptors: the soft limit is raised, and connections get a part of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from odar.descriptors import client_connections, descriptor_limit, server_connections

CODE = """
import resource
from odar.descriptors import *
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(raise_descriptor_limit(), client_connections(), server_connections())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit")
@pytest.mark.parametrize(("soft", "hard", "expected"), [(256, 1024, "1024 480 120"), (64, 64, "64 8 4")])
def test_the_soft_limit_is_raised_to_the_hard_one(soft, hard, expected):
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(soft=soft, hard=hard)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


def test_connections_leave_descriptors_for_other_files():
    assert client_connections() + 4 * server_connections() <= max(descriptor_limit(), 64)
