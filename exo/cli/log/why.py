"""`exo log why`: how something came to be as it is, as a story."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from exo.cli.log.options import MOMENT, HomeOption, JsonOption, log_file, moment, opened, progress, run
from exo.cli.log.view import local_time
from exo.log.explain.searching import OnProgress
from exo.log.explain.story import Story
from exo.log.explain.why import why
from exo.log.moments import Moment, position_of


def why_entity(
    entity: Annotated[
        str,
        typer.Argument(
            help="A node, instance, runner, generation, model or command, by its id; the beginning will do, and so "
            "will a node's host name or a model's short name."
        ),
    ],
    at: Annotated[
        str | None, typer.Option("--at", help=f"As of then. {MOMENT}.  [default: now]", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Print how something came to be as it is: what was decided, for whom, and on which figures."""
    with progress(hidden=as_json) as looked:
        story = run(_why(log_file(home), entity, moment(at, "--at"), looked))
    typer.echo(json.dumps(story.plain()) if as_json else "\n".join(lines(story)))


async def _why(path: Path, text: str, at: Moment | None, on_progress: OnProgress) -> Story:
    async with opened(path) as store:
        return await why(store, text, await position_of(store, at), on_progress)


def lines(story: Story) -> Iterator[str]:
    """A story for people, oldest first: an event a line, indented under what it belongs to, and where it came from."""
    yield f"{story.entity}, as of position {story.position}"
    yield f"{story.last.text}, since {local_time(story.last.recorded.entry.recorded_at)}"
    yield ""
    gap = len(story.steps) // 4 if story.left_out else -1
    cause = None
    for index, step in enumerate(story.steps):
        if index == gap:
            yield f"         … {story.left_out} events are left out: `exo log tail --entity {story.entity.id}` has them"
        indent = "  " * step.depth
        yield f"{step.position:>7}  {local_time(step.recorded.entry.recorded_at)}  {indent}{step.text}"
        if step.cause != cause:
            yield f"{'':>36}{indent}by {step.cause.text}"
        cause = step.cause
