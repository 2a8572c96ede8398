# SPDX-License-Identifier: BSD-3-Clause
"""Arrays by name, each a plain .npy file: libefs-objects in Python. See efs-objects(3).

    s = efs.Store("directory")
    s["A"] = array          # the old object or the new one, at any moment
    s["A"]                  # a read-only view without a copy
"""

from ._arrays import Info
from ._library import Error
from .draft import Draft
from .store import Objects, Store

__all__ = ["Draft", "Error", "Info", "Objects", "Store"]
__version__ = "0.1.0"
