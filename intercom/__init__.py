"""Let coding-agent sessions on one machine find each other and talk."""

from __future__ import annotations

__version__ = "0.1.0"
