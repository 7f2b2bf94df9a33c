"""What the scripts' command lines have in common: mistakes as one line, without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from multispin_env import parallel


@contextmanager
def one_line_errors(goes_on: bool = False) -> Iterator[None]:
    """Exit with a message, code 1, for a wrong value or a worker that died.

    With `goes_on` Ctrl-C too is a message, code 130: the same command goes on where it was.
    """
    try:
        yield
    except (ValueError, parallel.WorkerDiedError) as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        if not goes_on:
            raise
        print("interrupted: the same command goes on", file=sys.stderr)
        raise SystemExit(130) from None


def check_folder_of(output: Path | None) -> None:
    """Exit with a message if the file `--output`, where one is given, is in no folder there is."""
    if output is not None and not output.parent.is_dir():
        raise SystemExit(f"--output = {output}: its folder does not exist")
