from exo.domain.constraint import JsonObject
from exo.domain.messages.requests import GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.models.output_format import OutputFormat
from exo.runner.engines.scripted_tokenizer import END_TOKEN, ScriptedTokenizer
from exo.runner.output.opening import open_pipeline
from exo.runner.output.pipeline import PipelineResult
from exo.runner.output.segments import Call, Segment, Text
from tests.pipelines import pipeline_of, text_of


def test_an_end_token_adds_no_text() -> None:
    tokenizer = ScriptedTokenizer()
    pipeline = pipeline_of(tokenizer)
    assert pipeline.push(tokenizer.token("hello")) == PipelineResult((Text("hello"),))
    assert pipeline.push(END_TOKEN, "stop") == PipelineResult((), "stop")


def test_the_last_token_of_a_length_finish_keeps_its_text() -> None:
    tokenizer = ScriptedTokenizer()
    pipeline = pipeline_of(tokenizer)
    assert pipeline.push(tokenizer.token("hello"), "length") == PipelineResult((Text("hello"),), "length")


def test_a_stop_sequence_finishes_and_is_named() -> None:
    tokenizer = ScriptedTokenizer()
    pipeline = pipeline_of(tokenizer, ["\n\n"])
    assert pipeline.push(tokenizer.token("one\n")) == PipelineResult((Text("one"),), holds=True)
    assert pipeline.push(tokenizer.token("\ntwo")) == PipelineResult((), "stop", "\n\n")


def test_a_stop_sequence_in_the_last_token_wins_over_length() -> None:
    tokenizer = ScriptedTokenizer()
    pipeline = pipeline_of(tokenizer, ["."])
    assert pipeline.push(tokenizer.token("Yes. No"), "length") == PipelineResult((Text("Yes"),), "stop", ".")


def test_what_was_held_back_comes_with_the_finish() -> None:
    tokenizer = ScriptedTokenizer()
    pipeline = pipeline_of(tokenizer, ["\n\n"])
    assert pipeline.push(tokenizer.token("one\n")) == PipelineResult((Text("one"),), holds=True)
    assert pipeline.push(END_TOKEN, "stop") == PipelineResult((Text("\n"),), "stop")


def test_a_character_cut_over_tokens_comes_whole_and_an_incomplete_one_not_at_all() -> None:
    tokenizer = ScriptedTokenizer()
    pipeline = pipeline_of(tokenizer)
    rocket = list("🚀".encode())
    assert text_of(pipeline.push(tokenizer.token(rocket[:3]))) == ""
    assert text_of(pipeline.push(tokenizer.token(rocket[3:]))) == "🚀"
    assert text_of(pipeline.push(tokenizer.token(rocket[:2]))) == ""
    assert pipeline.push(END_TOKEN, "stop") == PipelineResult((), "stop")


def segments(request: GenerationRequest, text: str) -> list[Segment]:
    tokenizer = ScriptedTokenizer()
    pipeline = open_pipeline(OutputFormat(tools="llama3_json"), tokenizer, request)
    first = pipeline.push(tokenizer.token(text))
    return [*first.segments, *pipeline.push(END_TOKEN, "stop").segments]


def test_an_answer_in_a_wanted_format_is_no_call_whatever_it_looks_like() -> None:
    text = '{"name": "f", "parameters": {"x": 1}}'
    free = GenerationRequest(messages=(), params=SamplingParams())
    wanted = GenerationRequest(messages=(), params=SamplingParams(constraint=JsonObject()))
    assert segments(free, text) == [Call("f", '{"x": 1}')]
    assert segments(wanted, text) == [Text(text)]


def test_white_space_around_calls_is_no_text() -> None:
    tokenizer = ScriptedTokenizer()
    pipeline = pipeline_of(tokenizer, form=OutputFormat(tools="hermes"))
    call = '<tool_call>{"name": "f"}</tool_call>'
    result = pipeline.push(tokenizer.token(f"\n{call}\n{call}\n\nDone.\n"), "length")
    assert result.segments == (Call("f", "{}"), Call("f", "{}"), Text("\n\nDone.\n"))


def test_text_that_cannot_become_a_call_is_not_held_back() -> None:
    tokenizer = ScriptedTokenizer()
    pipeline = pipeline_of(tokenizer, form=OutputFormat(tools="hermes"))
    assert pipeline.push(tokenizer.token("write <tool")).segments == (Text("write "),)
    assert pipeline.push(tokenizer.token("_call> before")).segments == (Text("<tool_call>"), Text(" before"))
    assert pipeline.push(tokenizer.token(" it")) == PipelineResult((Text(" it"),))


def test_after_the_last_call_that_is_wanted_the_answer_is_over() -> None:
    tokenizer = ScriptedTokenizer()
    request = GenerationRequest(messages=(), params=SamplingParams(), parallel_tool_calls=False)
    pipeline = open_pipeline(OutputFormat(tools="hermes"), tokenizer, request)
    call = '<tool_call>{"name": "f"}</tool_call>'
    assert pipeline.push(tokenizer.token(call + call)) == PipelineResult((Call("f", "{}"),), "tool_calls")
