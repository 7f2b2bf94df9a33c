"""Compiling kernels with numba, and keeping the machine code on disk.

Numba notices when the file of a compiled function changes, but not when a function that it calls
changes in another file. So the machine code is kept in a folder that is named by a fingerprint of
all files of this package: after an edit of any of them everything is compiled anew. Folders of
earlier versions are left where they are, beside the bytecode, and may be deleted.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])
_config: Any = numba.config


def fingerprint(folder: Path) -> str:
    """A hash of the names and contents of all Python files and tables in a folder."""
    sha = hashlib.sha256()
    for path in sorted([*folder.glob("*.py"), *folder.glob("*.npy")]):
        content = path.read_bytes()
        sha.update(f"{path.name} {len(content)}\n".encode() + content)
    return sha.hexdigest()[:16]


def cache_folder(package: Path) -> Path | None:
    """Where machine code is kept: the first of these folders that can be written to, or None.

    `NUMBA_CACHE_DIR` where it is set; `__pycache__` beside the kernels; the user's cache.
    """
    here = f"kernels-{fingerprint(package)}"
    home = os.path.expanduser("~")  # as it is for a user without a home
    user = os.environ.get("XDG_CACHE_HOME") or ("" if home == "~" else f"{home}/.cache")
    places = [package / "__pycache__", *([Path(user) / "multispin-env"] if user else [])]
    if _config.CACHE_DIR:
        places.insert(0, Path(_config.CACHE_DIR))
    return next((place / here for place in places if _writable(place / here)), None)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


#: Where the machine code of this process is kept.
CACHE: Final = cache_folder(Path(__file__).parent)


@contextmanager
def _kept_in(folder: Path) -> Iterator[None]:
    """Numba reads where its cache is when a function is decorated."""
    before, _config.CACHE_DIR = _config.CACHE_DIR, str(folder)
    try:
        yield
    finally:
        _config.CACHE_DIR = before


def _compile(function: _Function, **options: Any) -> _Function:
    """Compile with numba, cached on disk; division by zero gives inf, as in numpy."""
    if CACHE is None:
        return cast("_Function", numba.njit(error_model="numpy", **options)(function))
    with _kept_in(CACHE):
        compiled_function = numba.njit(cache=True, error_model="numpy", **options)(function)
    return cast("_Function", compiled_function)


def compiled(function: _Function) -> _Function:
    """Compile a function."""
    return _compile(function)


def lean(function: _Function) -> _Function:
    """Compile a function that allocates nothing: inlined into its callers, no reference counts.

    Passing many arrays, and counting references to them, takes longer than the physics of a cell.
    Numba compiles no allocation, and no array as a result, under these options.
    """
    return _compile(function, forceinline=True, _nrt=False)


def inner(function: _Function) -> _Function:
    """Compile a lean function that only kernels call.

    It lacks the code that Python would call it by: a call from Python ends the process.
    """
    return called(function, forceinline=True)


def called(function: _Function, **options: Any) -> _Function:
    """As :func:`inner`, but called and not inlined: for what is long, and not always needed."""
    return _compile(function, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


def spliced(function: _Function) -> _Function:
    """Put a lean function's source into the kernels that call it: never compiled for itself."""
    options: dict[str, Any] = {"inline": "always", "error_model": "numpy", "_nrt": False}
    return cast("_Function", numba.njit(**options)(function))


def threaded(function: _Function) -> _Function:
    """Compile a lean function that lets other threads run while it does."""
    return _compile(function, nogil=True, _nrt=False)


def machine_code(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """What a compiled function runs for arguments of these types.

    Called directly, it saves numba's look at the types of all arguments in every call. Nothing is
    checked then: arguments of another dtype, layout or number corrupt memory.
    """
    compile_for = getattr(function, "compile", None)
    if compile_for is None:  # plain Python: NUMBA_DISABLE_JIT is set, or a profiler wraps it
        return function
    return cast("Callable[..., Any]", compile_for(tuple(map(numba.typeof, arguments))))
