"""Let Hermes 0.22 start on Python 3.11 to 3.13. Only its tests and the demo use this.

`tui_gateway.methods_onboarding` of 0.22 annotates with a `Path` it does not import:
harmless on 3.14, which reads annotations lazily, and a NameError at import before.
"""

import builtins
import pathlib
import sys

if sys.version_info < (3, 14):
    builtins.Path = pathlib.Path  # type: ignore[attr-defined]
