"""Options: what is accepted, what is refused and how, and that secrets stay secret."""

import pickle
from pathlib import Path

import pytest

from headwater.security.nkeys import KeyPair
from headwater.spark.errors import ApiError, OptionError
from headwater.spark.options import OPTIONS, option_table, parse_options

SEED = KeyPair.create("U").seed


def test_defaults() -> None:
    options = parse_options({"stream": "S"})
    assert options.streams == ("S",)
    assert options.endpoint.servers == (("127.0.0.1", 4222, False),)
    assert (options.starting, options.ending, options.partitions) == (0, None, None)
    assert options.api_prefix == "$JS.API"
    assert options.fail_on_data_loss and not options.fail_fast
    assert options.may_expire and options.retry_timeout == 120


def test_a_sequence_to_start_at_is_a_promise() -> None:
    assert not parse_options({"stream": "S", "starting": "5"}).may_expire
    assert parse_options({"stream": "S", "starting": "5", "allowExpired": "true"}).may_expire
    assert not parse_options({"stream": "S", "allowExpired": "false"}).may_expire
    assert parse_options({"stream": "S", "retryTimeout": "0"}).retry_timeout == 0


def test_names_are_case_insensitive_and_lists_are_split() -> None:
    given = {
        "STREAM": "A, B,A",
        "Servers": "nats://h1:1,tls://h2",
        "SUBJECTS": "a.*, b.>",
        "domain": "hub",
        "failondataloss": "false",
        "Starting": "5",
        "ending": "9",
    }
    options = parse_options(given)
    assert options.streams == ("A", "B")
    assert options.endpoint.servers == (("h1", 1, False), ("h2", 4222, True))
    assert options.filters == ("a.*", "b.>")
    assert options.api_prefix == "$JS.hub.API"
    assert not options.fail_on_data_loss
    assert (options.starting, options.ending) == (5, 9)


def test_patterns_stand_in_place_of_names() -> None:
    options = parse_options({"streams": "edge-*, hub"})
    assert (options.streams, options.patterns) == ((), ("edge-*", "hub"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "'stream' is required"),
        ({"stream": "S", "streams": "S*"}, "'stream' and 'streams' exclude each other"),
        ({"stream": "edge-*"}, "of a DataFrame; a command takes names, with commas (--stream A,B)"),
        ({"streams": "edge-.*"}, "* is any text, as in edge-*"),
        ({"kv": "config", "streams": "S*"}, "'kv' and 'streams' exclude each other"),
        (
            {"subscribePattern": "edge.*", "kafka.bootstrap.servers": "h:9092"},
            "'subscribePattern' by streams, with * for any text; 'kafka.bootstrap.servers' by serv",
        ),
        ({"stream": "S", "straem": "x", "group.id": "g"}, "'straem' (did you mean 'stream'?)"),
        ({"stream": "S", "straem": "x", "group.id": "g"}, "'group.id' by nothing"),
        ({"stream": "S", "kafka.sasl.jaas.config": "x"}, "config' by credentialsFile"),
        ({"stream": "S", "kafka.group.id": "x"}, "what was read is in the checkpoint"),
        ({"stream": "S", "kafka.client.id": "x"}, "one of Kafka's client: leave it away"),
        ({"stream": "S", "bootstrap.servers": "h:9092"}, "'bootstrap.servers' by servers"),
        ({"stream": "S", "starting": '{"S": -2}'}, "writes as -2 is earliest here"),
        ({"stream": "S", "ending": '{"S": -1}'}, "writes as -1 is latest here"),
        ({"stream": "S", "startingTimestamp": "1764000000000"}, "be 2025-11-24T16:00:00.000Z"),
        ({"stream": "S", "endingTimestamp": "99999999999999"}, "be 5138-11-16T09:46:39.999Z"),
        ({"stream": "S", "starting": '{"S": {"0": 23}}'}, 'write {"S": 17}'),
        ({"stream": "S", "starting": '{"S": 0}'}, "writes as 0 is earliest here"),
        ({"stream": "S", "ending": '{"T": 5}'}, "stream 'T' is not read"),
        ({"stream": "S", "ending": '{"S"'}, "is no JSON"),
        ({"stream": "S", "writeId": "a.b"}, "letters, digits"),
        ({"stream": "a.b"}, "Name its stream here, and the subject in option 'subjects'"),
        ({"stream": "S", "straem": "x"}, "did you mean 'stream'"),
        ({"stream": "S", "domain": "a b"}, "no domain"),
        ({"stream": "S", "starting": "newest"}, "latest or a sequence"),
        ({"stream": "S", "starting": "0"}, "latest or a sequence"),
        ({"stream": "S", "ending": "soon"}, "latest or a sequence"),
        ({"stream": "S", "partitions": "0"}, "from 1 to 10000"),
        ({"stream": "S", "partitions": "many"}, "from 1 to 10000"),
        ({"stream": "S", "batchBytes": "10"}, "from 65536"),
        ({"stream": "S", "headers": "yes"}, "off or map or raw"),
        ({"stream": "S", "columns": "seq"}, "none of"),
        ({"stream": "S", "columns": "headers"}, "needs option headers"),
        ({"stream": "S", "subjects": "a..b"}, "no subject filter"),
        ({"stream": "S", "subjects": ">.a"}, "no subject filter"),
        ({"stream": "S", "failOnDataLoss": "maybe"}, "true or false"),
        ({"stream": "S", "valueSchema": "a long"}, "needs valueFormat=json"),
        ({"stream": "S", "servers": "http://h"}, "nats://host:port"),
        ({"stream": "S", "servers": "nats://h:99999"}, "no usable port"),
        ({"stream": "S", "password": "x"}, "needs option 'user'"),
        ({"stream": "S", "user": "u", "token": "t"}, "give one of"),
        ({"stream": "S", "token": "t", "tokenEnv": "T"}, "only one of"),
        ({"stream": "S", "tokenEnv": "HEADWATER_NOT_SET"}, "is not set"),
        ({"stream": "S", "credentialsFile": "/nowhere/x"}, "cannot read"),
        ({"stream": "S", "tlsCaFile": "/nowhere/x"}, "cannot be read"),
        ({"stream": "S", "startingTimestamp": "2026-01-01"}, "a time with its zone"),
        ({"stream": "S", "startingTimestamp": "1969-12-31T23:59:59Z"}, "before 1970: no message"),
        ({"stream": "S", "endingTimestamp": "1969-12-31T23:30:00-01:00"}, "before 1970: no mess"),
        ({"stream": "S", "inboxPrefix": "a.>"}, "no subject without wildcards"),
    ],
)
def test_mistakes_are_explained(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(given)
    assert words in str(caught.value)


def test_positions_of_single_streams() -> None:
    given = {"starting": '{"A": 17, "B": "latest"}', "ending": '{"A": 99}'}
    options = parse_options({"stream": "A,B,C", **given})
    found = [(one.starting, one.from_latest, one.ending) for one in map(options.of, "ABC")]
    assert found == [(17, False, 99), (0, True, None), (0, False, None)]
    assert [options.of(stream).may_expire for stream in "ABC"] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("15 minutes", 900), ("2h", 7200), ("1 day", 86400)]
)
def test_spans(text: str, seconds: float) -> None:
    assert parse_options({"stream": "S", "maxTriggerDelay": text}).trigger_delay == seconds


def test_credentials_in_an_address_are_refused_without_being_repeated() -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({"stream": "S", "servers": "nats://me:hunter2@h:4222"})
    assert "hunter2" not in str(caught.value)


def test_secrets_are_read_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    monkeypatch.setenv("HEADWATER_TEST_TOKEN", "hunter2")
    for given in (
        {"user": "me", "passwordFile": str(secret)},
        {"user": "me", "password": "hunter2"},
        {"tokenEnv": "HEADWATER_TEST_TOKEN"},
    ):
        options = parse_options({"stream": "S", **given})
        again = pickle.loads(pickle.dumps(options))
        assert "hunter2" in again.endpoint.credentials.connect_fields("").values()
        assert "hunter2" not in repr(again) + str(again.endpoint.credentials)


def test_a_creds_file_gives_jwt_and_seed(tmp_path: Path) -> None:
    creds = tmp_path / "user.creds"
    creds.write_text(
        "-----BEGIN NATS USER JWT-----\neyJ.abc.def\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )
    found = parse_options({"stream": "S", "credentialsFile": str(creds)}).endpoint.credentials
    assert (found.jwt, found.seed) == ("eyJ.abc.def", SEED)
    creds.write_text(f"{SEED}\n")
    found = parse_options({"stream": "S", "nkeySeedFile": str(creds)}).endpoint.credentials
    assert (found.jwt, found.seed) == ("", SEED)
    for name in ("credentialsFile", "nkeySeedFile"):
        creds.write_text("hunter2")
        with pytest.raises(OptionError) as caught:
            parse_options({"stream": "S", name: str(creds)})
        assert "hunter2" not in str(caught.value)
    creds.write_text(SEED)
    with pytest.raises(OptionError, match="JWT and its seed"):
        parse_options({"stream": "S", "credentialsFile": str(creds)})


def test_every_option_is_described() -> None:
    assert all(OPTIONS.values())
    page = Path(__file__).parents[2] / "docs" / "SPARK.md"
    assert page.read_text(encoding="utf-8").endswith(option_table())


def test_api_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(ApiError(404, 10059, "stream not found")))
    assert (error.code, error.err_code) == (404, 10059)
