"""What mlx.distributed is told, and what a machine without a backend says."""

import json
from pathlib import Path

import pytest

from exo.errors import Fatal, Retryable
from exo.runner.engines.mlx.engine import MlxEngine
from exo.runner.engines.ranks import Peers
from exo.runner.engines.threads import ThreadShare
from tests.conftest import needs_mlx
from tests.tiny_models import BLAS_CACHE

pytestmark = needs_mlx
DEVICES = (("", "rdma_en2"), ("rdma_en5", ""))


def test_the_files_are_in_mlx_s_formats(tmp_path: Path) -> None:
    from exo.runner.engines.mlx.group import variables

    told = variables(Peers(1, ("10.0.0.1:5", "10.0.0.2:6"), "jaccl", DEVICES, "10.0.0.1:5"), tmp_path)
    assert json.loads(Path(told["MLX_HOSTFILE"]).read_text()) == [["10.0.0.1:5"], ["10.0.0.2:6"]]
    assert json.loads(Path(told["MLX_IBV_DEVICES"]).read_text()) == [[None, "rdma_en2"], ["rdma_en5", None]]
    assert (told["MLX_RANK"], told["MLX_JACCL_COORDINATOR"]) == ("1", "10.0.0.1:5")


def test_a_machine_without_the_backend_says_so() -> None:
    import mlx.core as mx

    if mx.distributed.is_available("jaccl"):
        pytest.skip("this machine has jaccl")
    with pytest.raises(Fatal, match="no jaccl"):
        MlxEngine(BLAS_CACHE, ThreadShare()).join(Peers(0, ("10.0.0.1:5", "10.0.0.2:6"), "jaccl", DEVICES, ""))


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(Retryable, match=r"192\.0\.2\.1"):
        MlxEngine(BLAS_CACHE, ThreadShare()).listen("192.0.2.1")
