"""`mlx_lm.server` as it is, with the same BLAS as exo's runner, so that only the servers differ."""

import sys
from pathlib import Path

from exo.runner.engines.mlx.blas import bind_fast_blas


def main() -> None:
    """Run the server with the arguments after the cache folder."""
    bind_fast_blas(Path(sys.argv.pop(1)))
    from mlx_lm.server import main as serve

    serve()


if __name__ == "__main__":
    main()
