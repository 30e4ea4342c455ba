"""Whether the chat templates of a model folder are templates at all, found out before anybody waits for an answer."""

from collections.abc import Callable, Mapping
from pathlib import Path

from jinja2.exceptions import TemplateError, TemplateSyntaxError

from exo.errors import Fatal, one_line
from exo.models.templates import DEFAULT, MORE_TEMPLATES, OLD_TEMPLATE_FILE, TEMPLATE_FILE, TOKENIZER_CONFIG

REFUSALS = (TemplateError, ValueError, TypeError, LookupError)
"""What a template raises that does not take a conversation. It may take others."""


def check_templates(folder: Path, templates: Mapping[str, str], render: Callable[[str], object]) -> None:
    """Compiles each template and tries it once; `render` does both with a short conversation.

    Raises Fatal, naming the file, for one that is no Jinja, or that fails in a way which is no refusal.
    """
    for name, template in templates.items():
        try:
            render(template)
        except TemplateSyntaxError as error:
            where = f"line {error.lineno}: {error.message}"
            raise Fatal(f"{_file(folder, name)} holds a broken chat template ({where}): fetch it again") from error
        except REFUSALS:
            pass
        except Exception as error:  # of any kind: a template computes
            where = f"{_file(folder, name)} holds a chat template that fails"
            raise Fatal(f"{where} ({one_line(error)}): fetch it again") from error


def _file(folder: Path, name: str) -> Path:
    """Where transformers takes a template from: a file of its own goes before the configuration."""
    own = folder / (TEMPLATE_FILE if name == DEFAULT else f"{MORE_TEMPLATES}/{name}.jinja")
    old = folder / OLD_TEMPLATE_FILE
    return next((file for file in (own, old) if file.exists()), folder / TOKENIZER_CONFIG)
