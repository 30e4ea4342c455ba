"""The items of a request's input, as they are listed."""

from collections.abc import Sequence
from typing import assert_never

from pydantic_core import to_json

from exo.api.openai.responses.contents import TextPart
from exo.api.openai.responses.items import FunctionCallItem, FunctionOutputItem, Item, MessageItem, ReasoningItem
from exo.api.openai.responses.shapes import InputItems
from exo.domain.ids import TaskId
from exo.errors import Rejected


def listed(task_id: TaskId, items: Sequence[Item]) -> list[dict[str, object]]:
    """Each as OpenAI has it, with an id: its own, or a new one."""
    return [
        {"id": item.id or f"in_{task_id}_{index}", "status": item.status or "completed", **_fields(item)}
        for index, item in enumerate(items)
    ]


def page(items: Sequence[dict[str, object]], limit: int, after: str | None) -> InputItems:
    """A list's part. Raises Rejected where there is no item `after`."""
    ids = [str(item["id"]) for item in items]
    if after is not None and after not in ids:
        raise Rejected(f"the input has no item '{after[:100]}'", param="after")
    rest = items[ids.index(after) + 1 :] if after is not None else items
    data = list(rest[:limit])
    return {
        "object": "list",
        "data": data,
        "first_id": str(data[0]["id"]) if data else None,
        "last_id": str(data[-1]["id"]) if data else None,
        "has_more": len(rest) > limit,
    }


def _fields(item: Item) -> dict[str, object]:
    match item:
        case MessageItem():
            return {"type": item.type, "role": item.role, "content": _parts(item.content, item.role == "assistant")}
        case FunctionCallItem():
            arguments = to_json(item.arguments).decode()
            return {"type": item.type, "call_id": item.call_id, "name": item.name, "arguments": arguments}
        case FunctionOutputItem():
            return {"type": item.type, "call_id": item.call_id, "output": _parts(item.output, answered=False)}
        case ReasoningItem():
            content = [part.model_dump() for part in item.content or ()]
            return {"type": item.type, "summary": [], "content": content}
        case _:
            assert_never(item)


def _parts(content: Sequence[TextPart], answered: bool) -> list[dict[str, object]]:
    if answered:
        return [{"type": "output_text", "text": part.text, "annotations": []} for part in content]
    return [{"type": "input_text", "text": part.text} for part in content]
