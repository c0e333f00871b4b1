"""What generated requests have found, as fixed ones on both servers."""

import asyncio
from typing import Any

import pytest

from tests.differ.histories import Step, api
from tests.differ.pair import REQUESTS, Pair
from tests.differ.player import Player
from tests.differ.requests.requests import requests


def asked(subject: str, body: str, level: str = "") -> Step:
    step: Step = {"do": "ask", "subject": f"$JS.API.{subject}", "body": body}
    return {**step, "headers": [("Nats-Required-Api-Level", level)]} if level else step


def made(config: str) -> Step:
    return asked("CONSUMER.CREATE.%.C", f'{{"stream_name":"%","config":{{{config}}}}}')


def pulled(body: str) -> list[Step]:
    return [CONSUMER, {"do": "pull", "consumer": "C", "body": body}]


def limited(key: str, values: list[str]) -> str:
    """A request whose field stands in it several times."""
    fields = ",".join(f'"{key}":{value}' for value in values)
    return f'{{"name":"%","subjects":["%.>"],{fields}}}'


STREAM = api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"]})
INFO = api("STREAM.INFO.%", None)
CONSUMER = made('"durable_name":"C","ack_policy":"explicit"')
STEPS: dict[str, list[Step]] = {
    "a good value behind one of a wrong type": [made('"max_waiting":"/","max_waiting":1')],
    "a good value before one of a wrong type": [made('"max_waiting":1,"max_waiting":"/"')],
    "large letters with a wrong type": [asked("STREAM.MSG.GET.%", '{"SEQ":true,"seq":1}')],
    "several of one limit": [asked("STREAM.CREATE.%", limited("max_msgs", ["1", "2", "3"])), INFO],
    "null behind a limit": [asked("STREAM.CREATE.%", limited("max_msgs", ["1", "null"])), INFO],
    "null behind a list": [asked("STREAM.CREATE.%", limited("metadata", ['{"k":"1"}', "null"])),
        INFO],
    "null behind a time": [
        asked("STREAM.MSG.GET.%", '{"start_time":"2020-01-01T00:00:00Z","start_time":null}'),
        asked("STREAM.MSG.GET.%", '{"seq":1,"up_to_time":"2020-01-01T00:00:00Z"}'
            '{"up_to_time":null}')],
    "null behind the time of a pause": [
        CONSUMER, asked("CONSUMER.PAUSE.%.C", '{"pause_until":"2020-01-01T00:00:00Z",'
            '"pause_until":null}'), api("CONSUMER.LIST.%", None),
        asked("CONSUMER.PAUSE.%.C", '{"pause_until":null}'), api("CONSUMER.LIST.%", None)],
    "a purge of no stream, up to a sequence that there is not": [
        asked("STREAM.PURGE.X", '{"seq":9223372036854775808}{}'),
        asked("STREAM.PURGE.X", '{"seq":9223372036854775808}')],
    "a time that is none in large letters": [
        asked("STREAM.MSG.GET.%", '{"START_TIME":"x"}'),
        asked("STREAM.MSG.GET.%", '{"START_TIME":"x","start_time":"2020-01-01T00:00:00Z"}')],
    "direct gets of several values or of space": [
        asked("STREAM.CREATE.%", '{"name":"%","subjects":["%.>"],"allow_direct":true}'),
        *(asked("DIRECT.GET.%", body) for body in (
            '{"seq":1}{}', '{"seq":1,"seq":null}{}', "{}{}", "null{}", " ", '{"seq":1}\n')),
    ],
    "a direct get of no stream": [asked("DIRECT.GET", ""), asked("DIRECT.GETX", "{}")],
    "objects laid over each other": [
        asked("STREAM.CREATE.%", limited(
            "consumer_limits", ['{"max_ack_pending":5}', '{"inactive_threshold":5000000000}'])),
        INFO],
    "letters of no width in a transform": [
        asked("STREAM.CREATE.%M",
            r'{"name":"%M","subject_transform":{"src":"%.a","dest":"\u2028"}}'),
        asked("STREAM.UPDATE.%", '{"name":"%","subjects":["%.>"],"republish":{"src":">",'
            r'"dest":"%r.\u00a0.\u200b.>"}}')],
    "null behind an object": [
        asked("CONSUMER.CREATE.%.C", '{"stream_name":"%","config":{"durable_name":"C"},'
            '"CONFIG":null}'),
        asked("STREAM.UPDATE.%", limited("consumer_limits", ['{"max_ack_pending":5}', "null"])),
        INFO],
    "large letters between small ones": [
        asked("STREAM.UPDATE.%", limited("max_msgs", ['1,"MAX_MSGS":2', "3"])), INFO],
    "keys of clients, large and small": [
        asked("STREAM.UPDATE.%", limited("metadata", ['{"k":"1","K":"2","k":"3"}'])), INFO],
    "keys of clients, one value of which is no text": [step for value in (
        '{"k":false,"k":"1"}', '{"k":"1","k":false}', '{"k":null,"k":"1"}', '{"k":"1","k":null}',
        '{"k":"1","k":2,"k":"3"}', '{"k":{},"K":"1"}', '{"k":[],"k":null}')
        for step in (asked("STREAM.UPDATE.%", limited("metadata", [value])), INFO)],
    "a field in one of two objects": [
        asked("CONSUMER.LIST.%", '{"offset":[null],"offset":null}{}')],
    "an action that is none before one": [
        asked("CONSUMER.CREATE.%", '{"stream_name":"%","action":"x","action":"update"}')],
    "bytes that are no text": [asked("STREAM.PURGE.%", '{"filter":"\udcff\udce2\udc82("}')],
    "such bytes that are kept": [
        asked("STREAM.UPDATE.%", '{"name":"%","subjects":["%.>"],"description":"a\udce2\udc82b"}'),
        INFO],
    "half of a pair": [
        asked("STREAM.UPDATE.%", '{"name":"%","subjects":["%.>"],"description":'
            r'"\ud800\ud83d\ude00\ude00\\ud800\ud800\ud800"}'), INFO],
    "a level for a body that is none": [asked("CONSUMER.CREATE.%", '{"config":01}', "x")],
    "a level for a full body": [CONSUMER, asked("CONSUMER.INFO.%.C", '{"a":1}', "99")],
    "a level for a pause": [CONSUMER, asked("CONSUMER.PAUSE.%.C", '{"pause_until":1}', "99")],
    "levels": [asked("STREAM.INFO.%", "", level) for level in (
        "-1", "+1", "+99", "-", "+", "1_0", "-9223372036854775808", "-9223372036854775809",
        "9223372036854775808", "00000000000000000000001", "")],
    "a level for a leader": [asked("STREAM.LEADER.STEPDOWN.%", "", "99"),
        asked("CONSUMER.LEADER.STEPDOWN.%.C", "x", "99"), asked("STREAM.PEER.REMOVE.%", "", "x")],
    "a level for a reset": [CONSUMER, asked("CONSUMER.RESET.%.C", "{}", "x"),
        asked("CONSUMER.RESET.%.X", "{}", "x")],
    "a list of streams": [api("STREAM.LIST", None)],
    "numbers beyond all": [step for number in ("1e999", "-1e400", "[1.5E+999]", "1e300")
        for step in pulled(f'{{"batch":1,"id":"1e999","unknown":{number}}}')],
    "a number beyond all in a field": pulled('{"batch":1e999}'),
    "integers beyond all": pulled('{"batch":1,"no_wait":true,"unknown":18446744073709551616}'),
    "numbers that end early": [step for number in ("1.", "1e", "1e+", "-", "1.x", "1Ex")
        for step in pulled(f'{{"batch":{number}}}')],
}  # fmt: skip


@pytest.fixture(scope="module")
def ports() -> Any:
    with Pair(REQUESTS) as pair:
        yield pair.ports


@pytest.mark.parametrize("name", STEPS)
def test_requests_have_the_same_answers(ports: tuple[int, int], name: str) -> None:
    assert asyncio.run(Player(ports, "u0").play([STREAM, *STEPS[name]])) is None


def test_a_seed_makes_its_requests_again() -> None:
    assert requests(7) == requests(7) != requests(8)
