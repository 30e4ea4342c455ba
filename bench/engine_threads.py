"""What more threads than one give, when cores are free and when they are not."""

from bench.contenders import engine
from bench.engine_setup import Setup
from bench.engine_speed import by_tokens, compare, decode, prefill
from exo.node.cores import compute_cores

STREAMS = (1, 8)


def threads(setup: Setup) -> None:
    """Print the speeds of our engine on one thread, and on as many as it finds free cores for."""
    cores = compute_cores()
    if cores < 2:
        print("\nthreads: there is one core only")
        return
    names = "one thread", f"up to {cores}"
    name, folder, work = setup.library.engine, setup.folder, setup.work
    with engine(name, folder, work) as one, engine(name, folder, work, threads=cores) as more:
        contenders = dict(zip(names, (by_tokens(setup, one), by_tokens(setup, more)), strict=True))
        compare(setup, contenders, {"prefill": prefill, "decode": decode}, STREAMS, [(names[1], names[0])])
