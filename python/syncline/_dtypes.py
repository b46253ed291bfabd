"""Element types: their names here, in numpy and in torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import SynclineError

_NUMPY = {
    "bool": "bool", "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "f16": "float16",
    "u32": "uint32", "i32": "int32", "f32": "float32", "u64": "uint64", "i64": "int64",
    "f64": "float64", "c64": "complex64",
}  # fmt: skip

_ML_DTYPES = {
    "bf16": "bfloat16",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e8m0": "float8_e8m0fnu",
}

NAMES = {**_NUMPY, **_ML_DTYPES}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns numpy's type for one of ours; those that numpy lacks come from ml_dtypes."""
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    try:
        import ml_dtypes
    except ImportError:
        text = f"numpy has no {name}: pip install ml_dtypes, or read it with torch"
        raise SynclineError(text) from None
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
    return found


def torch_dtype(name: str) -> Any:
    """Returns torch's type for one of ours."""
    import torch

    found = getattr(torch, NAMES[name], None)
    if found is None:
        raise SynclineError(f"this torch has no {NAMES[name]}: install a newer one")
    return found


def name_of_torch(dtype: Any) -> str:
    """Returns our name for a type of torch."""
    text = str(dtype).removeprefix("torch.")
    for name, other in NAMES.items():
        if other == text:
            return name
    raise SynclineError(f"elements of {dtype} cannot be moved: there is no such type here")
