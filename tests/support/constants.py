"""`odar` in a process of its own, with other constants than its users have."""

from __future__ import annotations

from collections.abc import Mapping


def odar_code(constants: Mapping[str, str] | None = None) -> str:
    """Python code that runs `odar` after assignments in its modules.

    >>> print(odar_code({"odar.serving.server": "NOTICE_S = 0.4"}))
    import odar.serving.server
    exec('NOTICE_S = 0.4', vars(odar.serving.server))
    from odar.cli.main import main; main()
    """
    changes = [f"import {name}\nexec({code!r}, vars({name}))" for name, code in (constants or {}).items()]
    return "\n".join([*changes, "from odar.cli.main import main; main()"])
