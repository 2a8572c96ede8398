# SPDX-License-Identifier: BSD-3-Clause
"""Arrays by name, each a plain .npy file: libefs-objects in Python. See efs-objects(3).

s = efs.Store("directory")
s["A"] = array          # the old object or the new one, at any moment
s["A"]                  # a read-only view without a copy
with s.version("run", 7) as v:
    v["u"] = u          # visible at the end, with all others
s.latest("run")["u"]
"""

from ._arrays import Info
from ._library import Error
from .draft import Draft, JoinedDraft
from ._objects import Objects
from .persistent import Persistent
from .store import Store
from .bundles import Bundle, NewBundle
from .versions import JoinedVersion, NewVersion, Version

__all__ = [
    "Bundle",
    "Draft",
    "Error",
    "Info",
    "JoinedDraft",
    "JoinedVersion",
    "NewBundle",
    "NewVersion",
    "Objects",
    "Persistent",
    "Store",
    "Version",
]
__version__ = "0.1.0"
