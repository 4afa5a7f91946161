"""The compiled functions of `scipy.special`, without its wrappers for other array libraries.

Those wrappers import nearly all of NumPy and SciPy's test tools: 220 ms, which is more than what
most commands then compute; the functions take 20 ms. They are the same objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scipy.special import (
        bdtr,
        betainc,
        betaincinv,
        betaln,
        chdtri,
        gammainc,
        gammaincc,
        gammainccinv,
        gammaincinv,
        gammaln,
        log_ndtr,
        ndtri,
        ndtri_exp,
        pdtr,
        pdtrc,
        pdtrik,
        stdtr,
        stdtrit,
        xlog1py,
        xlogy,
    )

__all__ = [
    "bdtr",
    "betainc",
    "betaincinv",
    "betaln",
    "chdtri",
    "gammainc",
    "gammaincc",
    "gammainccinv",
    "gammaincinv",
    "gammaln",
    "log_ndtr",
    "ndtri",
    "ndtri_exp",
    "pdtr",
    "pdtrc",
    "pdtrik",
    "stdtr",
    "stdtrit",
    "xlog1py",
    "xlogy",
]


def _compiled() -> object:
    """SciPy's module of them, or all of `scipy.special` where it stands elsewhere."""
    import importlib
    import sys
    from pathlib import Path
    from types import ModuleType

    name = "scipy.special"
    if name not in sys.modules:
        import scipy

        bare = ModuleType(name)
        bare.__path__ = [str(Path(folder) / "special") for folder in scipy.__path__]
        sys.modules[name] = bare
        try:
            found = importlib.import_module(f"{name}._ufuncs")
        except ImportError:
            found = None
        finally:
            del sys.modules[name]
        if found is not None and all(hasattr(found, function) for function in __all__):
            return found
    return importlib.import_module(name)


def __getattr__(name: str) -> object:
    """A function, of which the first one loads them all."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = _compiled()
    globals().update({function: getattr(found, function) for function in __all__})
    return globals()[name]
