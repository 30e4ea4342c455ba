from exo.runner.engines.scripted_tokenizer import END_TOKEN, ScriptedTokenizer
from exo.runner.output.pipeline import PipelineResult
from exo.runner.output.segments import Text
from tests.pipelines import pipeline_of


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
    assert pipeline.push(tokenizer.token(rocket[:3])).text == ""
    assert pipeline.push(tokenizer.token(rocket[3:])).text == "🚀"
    assert pipeline.push(tokenizer.token(rocket[:2])).text == ""
    assert pipeline.push(END_TOKEN, "stop") == PipelineResult((), "stop")
