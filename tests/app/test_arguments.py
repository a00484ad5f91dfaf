"""How a line is read: mistakes are one sentence, and the user's own program gets its own words."""

from __future__ import annotations

import pytest

from jupyter_gpupool.client.arguments import HelpAsked, Parser, job_id
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.submitting import path_arguments


@pytest.fixture
def parser() -> Parser:
    parser = Parser("gpupool submit", "submit")
    path_arguments(parser)
    return parser


def read(parser: Parser, line: str) -> tuple[dict[str, object], list[str]]:
    mine, own = parser.own(line.split())
    return vars(parser.read(mine)), own


@pytest.mark.parametrize(
    "line",
    ["--gpus 2 train.py a b", "train.py --gpus 2 a b", "train.py a --gpus 2 b", "train.py a b --gpus=2"],
)
def test_options_of_the_pool_stand_before_or_after_the_script(parser: Parser, line: str) -> None:
    found, own = read(parser, line)
    assert (found["target"], found["args"], found["gpus"], own) == ("train.py", ["a", "b"], "2", [])


def test_without_options_of_the_pool_after_it_the_script_keeps_all_of_its_own(parser: Parser) -> None:
    found, own = read(parser, "--gpus 2 train.py --lr 0.1 data -v")
    assert (found["target"], own) == ("train.py", ["--lr", "0.1", "data", "-v"])


def test_what_follows_two_dashes_is_the_scripts_also_when_it_looks_like_the_pools(parser: Parser) -> None:
    found, own = read(parser, "train.py --gpus 2 -- --gpus 7 --time 3")
    assert (found["gpus"], own) == ("2", ["--gpus", "7", "--time", "3"])


def test_a_mixture_after_the_script_is_refused(parser: Parser) -> None:
    with pytest.raises(
        Refused, match=r"^--gpus stands after train.py.* Put the pool's options before train.py"
    ):
        read(parser, "train.py --lr 0.1 --gpus 1")


def test_a_mistyped_option_after_the_script_is_not_passed_on_in_silence(parser: Parser) -> None:
    with pytest.raises(Refused, match=r"no option --gpuss\. Did you mean --gpus\?"):
        read(parser, "train.py --gpuss 1")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--gpuss 1 train.py", "gpupool submit: there is no option --gpuss. Did you mean --gpus?"),
        ("--xyzzy train.py", "gpupool submit: there is no option --xyzzy."),
        ("train.py --gpus", "gpupool submit: --gpus needs a value."),
        ("--workdir x train.py", "gpupool submit: 'x' is not one of: 'here', 'snapshot'."),
    ],
)
def test_a_mistake_is_one_sentence(parser: Parser, line: str, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        read(parser, line)
    assert str(refused.value) == sentence


def test_help_is_raised_not_printed(parser: Parser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HelpAsked, match="--gpu-memory SIZE"):
        read(parser, "--help")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("value", ["-1", "-3h", "-4GiB", "-.5"])
@pytest.mark.parametrize("line", ["train.py --time {}", "--time {} train.py", "--time={} train.py"])
def test_a_value_may_begin_with_a_dash_where_it_is_a_number(parser: Parser, line: str, value: str) -> None:
    assert read(parser, line.format(value))[0]["time"] == value  # the service says what is wrong with it


@pytest.mark.parametrize(("text", "number"), [("17", 17), ("#17", 17), ("last", "last")])
def test_a_job_is_named_by_its_number(text: str, number: object) -> None:
    assert job_id(text) == number


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1.5", "17x"])
def test_what_is_no_number_of_a_job_is_refused(text: str) -> None:
    parser = Parser("gpupool show")
    parser.add_argument("job", metavar="ID", type=job_id)
    with pytest.raises(Refused, match=r"is not a job's number, such as 17 or 12\[3\], nor last\."):
        parser.read([text])


def test_one_argument_too_many_is_named() -> None:
    with pytest.raises(Refused, match="'x' is one argument too many"):
        Parser("gpupool queue").read(["x", "y"])
