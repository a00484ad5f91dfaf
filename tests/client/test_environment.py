"""Which variables reach a job, the user's settings about them, and the table of options."""

from __future__ import annotations

import stat

import pytest

from jupyter_gpupool.client.arguments import Parser
from jupyter_gpupool.client.config import always_send, config_file, set_always_send
from jupyter_gpupool.client.environment import belongs_to_session, captured, is_credential
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.options import OPTIONS, add_options, given, keywords, parameter

CREDENTIALS = {
    "HF_TOKEN": "x",
    "GITHUBTOKEN": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_ACCESS_KEY_ID": "x",
    "OPENAI_API_KEY": "x",
    "OPENAI_APIKEY_2": "x",
    "PGPASSWORD": "x",
    "db_passwd": "x",
    "MY_SECRET": "x",
    "SECRET_NAME": "x",
    "GH_PAT": "x",
    "SENTRY_DSN": "x",
    "SESSION_COOKIE": "x",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/ada/key.json",
    "MODEL_SERVER": "sk-abcdefghijklmnop1234",
    "REMOTE": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "ID": "AKIAIOSFODNN7EXAMPLE",
    "BEARER": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
    "CERT": "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
    "DATABASE_URL": "postgresql://ada:pw@db/x",
    "HTTPS_PROXY": "http://ada:pw@proxy:3128",
}
HARMLESS = {
    "PATH": "/usr/bin:/bin",
    "TOKENIZERS_PARALLELISM": "false",
    "KEYMAP": "us",
    "AUTHOR": "Ada",
    "PASSAGE": "x",
    "PATTERN": "x",
    "MONKEY": "x",
    "MAX_TOKENS": "512",
    "DATA_URL": "https://data.example/a:b@c",
    "PYTHONPATH": "/home/ada/lib",
    "DISPLAY": ":0",
    "EMPTY_TOKEN": "",
    "LONG": "abc" * 40_000,
    "TASK_ID": "risk-management-2024-final",
    "JUPYTER_PATH": "/opt/kernels",
    "MPLBACKEND": "Agg",
    "CONDA_PREFIX": "/opt/conda",
}
SESSION = {
    "JPY_PARENT_PID": "1",
    "JUPYTERHUB_API_TOKEN": "x",
    "JUPYTER_TOKEN": "x",
    "KERNEL_ID": "x",
    "GPUPOOL_LEASE_ID": "3",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "PWD": "/home/ada",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "BASH_FUNC_ml%%": "() { :; }",
    "CUDA_VISIBLE_DEVICES": "0",
    "GIT_PAGER": "cat",
    "SLURM_JOB_ID": "4",
}


@pytest.mark.parametrize(("name", "value"), CREDENTIALS.items())
def test_what_looks_like_a_credential_is_held_back(name, value):
    assert is_credential(name, value)
    assert captured({name: value, "A": "1"}) == ({"A": "1"}, [name])


@pytest.mark.parametrize(("name", "value"), HARMLESS.items())
def test_what_is_harmless_is_sent(name, value):
    assert captured({name: value}) == ({name: value}, [])


@pytest.mark.parametrize(("name", "value"), SESSION.items())
def test_what_belongs_to_the_session_stays_without_a_word(name, value):
    assert belongs_to_session(name, value)
    assert captured({name: value}) == ({}, [])


def test_what_is_asked_for_is_sent_whatever_it_looks_like():
    environ = {"HF_TOKEN": "x", "WANDB_API_KEY": "y", "JPY_X": "z"}
    kept, held_back = captured(environ, ["HF_TOKEN", "JPY_X", "NEW=a=b"], ["WANDB_API_KEY"])
    assert kept == {"HF_TOKEN": "x", "WANDB_API_KEY": "y", "JPY_X": "z", "NEW": "a=b"}
    assert held_back == []


def test_a_value_that_is_no_text_is_held_back():
    assert captured({"ODD": "a\udcff"}) == ({}, ["ODD"])


@pytest.mark.parametrize(
    ("text", "problem"), [("NOPE", "is not set here"), ("1X=2", "write NAME"), ("=", "write NAME")]
)
def test_a_variable_that_cannot_be_sent_is_refused(text, problem):
    with pytest.raises(Refused, match=problem):
        captured({}, [text])


def test_settings_are_kept_in_the_users_folder(tmp_path):
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert always_send(environ) == ()
    set_always_send("WANDB_API_KEY", environ)
    assert set_always_send("HF_TOKEN", environ) == ("HF_TOKEN", "WANDB_API_KEY")
    assert always_send(environ) == ("HF_TOKEN", "WANDB_API_KEY")
    assert set_always_send("HF_TOKEN", environ, send=False) == ("WANDB_API_KEY",)
    assert stat.S_IMODE(config_file(environ).parent.stat().st_mode) == 0o700
    assert [path.name for path in config_file(environ).parent.iterdir()] == ["config.json"]


def test_bad_settings_are_one_sentence(tmp_path):
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    with pytest.raises(Refused, match="'A B' is not the name"):
        set_always_send("A B", environ)
    config_file(environ).parent.mkdir()
    for text in ("{", "[]", '{"always_send": 3}'):
        config_file(environ).write_text(text)
        with pytest.raises(Refused, match="cannot be read"):
            always_send(environ)


def parsed(line):
    parser = Parser("submit")
    add_options(parser)
    parser.add_argument("script")
    return given(parser.read(line.split()))


def test_a_line_and_keywords_give_the_same_options():
    line = (
        "--gpus 2 --gpu-type a100,h100 --time 8h --resumable --env A --env B=1 --send x,y --fetch z "
        "-p lr=0.1 -p name=ada --no-snapshot train.py"
    )
    expected = {
        "gpus": "2",
        "gpu_type": ["a100", "h100"],
        "time": "8h",
        "resumable": True,
        "env": ["A", "B=1"],
        "send": ["x", "y"],
        "fetch": ["z"],
        "parameters": {"lr": 0.1, "name": "ada"},
        "no_snapshot": True,
    }
    assert parsed(line) == expected
    assert (
        keywords(
            {
                "gpus": 2,
                "gpu_type": "a100,h100",
                "time": "8h",
                "resumable": True,
                "env": ["A", "B=1"],
                "send": ("x", "y"),
                "fetch": "z",
                "parameters": {"lr": 0.1, "name": "ada"},
                "no_snapshot": True,
                "window": None,
            }
        )
        == expected
    )
    assert keywords({"env": {"A": 1}}) == {"env": ["A=1"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=0.5", 0.5),
        ("a=[1, 2]", [1, 2]),
        ("a=true", True),
        ("a=True", True),
        ("a=None", None),
        ("a=null", None),
        ("a=", ""),
        ("a=x=y", "x=y"),
        ("a=NaN", "NaN"),
        ('a="1"', "1"),
    ],
)
def test_values_of_parameters(text, value):
    assert parameter(text) == ("a", value)


@pytest.mark.parametrize("text", ["a", "=1", "a b=1", "1a=2"])
def test_a_parameter_without_a_name_is_refused(text):
    with pytest.raises(Refused, match="write name=value"):
        parameter(text)


def test_unknown_options_are_refused_with_the_nearest():
    with pytest.raises(Refused, match=r"here is no option --gpu-mem\..*Did you mean --gpu-memory\?"):
        parsed("--gpu-mem=8GiB train.py")
    with pytest.raises(Refused, match=r"There is no option gpu_mem\..*Did you mean gpu_memory\?"):
        keywords({"gpu_mem": "8GiB"})
    with pytest.raises(Refused, match=r"There is no option colour\.$"):
        keywords({"colour": "red"})
    for bad in ({"gpus": True}, {"time": ["8h"]}, {"workdir": "there"}):
        with pytest.raises(Refused, match="must be"):
            keywords(bad)


def test_every_option_is_explained_and_has_a_name_of_its_own():
    names = [option.dest for option in OPTIONS]
    assert len(set(names)) == len(names)
    assert all(option.help for option in OPTIONS)
    assert {"gpus", "gpu_memory", "resumable", "parameters", "no_snapshot", "dry_run"} <= set(names)
