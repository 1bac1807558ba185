"""Every attack there is. A module with attacks is imported here, which registers them."""

from __future__ import annotations

from attack import access, availability, crowding, provoked, shares
from attack.scene import ATTACKS

__all__ = ["ATTACKS", "access", "availability", "crowding", "provoked", "shares"]
