"""Read back what a page of maps holds."""

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np


def page_data(page: str | Path) -> dict[str, Any]:
    """Return the data of a page of `write_view`, by its text or its file."""
    text = page.read_text(encoding="utf-8") if isinstance(page, Path) else page
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.DOTALL)
    read: dict[str, Any] = json.loads(data)
    return read


def weights_of(level: dict[str, Any], number: int = 0) -> np.ndarray:
    """Return a map of a level as (T, S) float64."""
    packed = level["maps"][number]
    high = _plane(packed["high"])
    numbers = high * 256.0 + _plane(packed["low"]) if "low" in packed else np.where(high, high * 256.0 + 128, 0)
    weights = packed["scale"] * (numbers / 65535) ** 2
    return weights.reshape(len(level["target"]), len(level["source"]))


def _plane(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8).astype(np.int64)
