"""JUIDs, nicknames, the rule for names, and the nearest known word."""

import datetime
import random
import re

import pytest

from monkey.errors import UsageProblem
from monkey.names import (
    NICKNAMES,
    check_name,
    did_you_mean,
    is_juid,
    is_nickname,
    juid_for,
    juid_key,
    nickname_for,
    suggest,
)

DAY = datetime.date(2026, 11, 21)


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "-x", ".hidden", "x" * 64, "..."])
def test_names_by_the_rule_are_taken(name: str) -> None:
    assert check_name(name, "--name") == name


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a/b", "é", "a\n", "{{ x }}", "$(x)", ".", "..", "\uff11"])
def test_other_names_are_refused_by_their_field(name: str) -> None:
    with pytest.raises(UsageProblem, match=r"1 to 64 of A-Z a-z 0-9 \. _ -") as caught:
        check_name(name, "--name")
    assert caught.value.field == "--name"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 5, True, ["a"]])
def test_what_is_no_text_is_no_name(value: object) -> None:
    with pytest.raises(UsageProblem, match="expected a name"):
        check_name(value, "name")


def test_a_long_name_is_not_quoted_whole() -> None:
    with pytest.raises(UsageProblem) as caught:
        check_name("x" * 100_000, "name")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("n", "juid"), [(1, "26-11-21-001"), (999, "26-11-21-999"), (1000, "26-11-21-1000")])
def test_juids_have_at_least_three_digits(n: int, juid: str) -> None:
    assert juid_for(DAY, n) == juid
    assert is_juid(juid)


def test_there_is_no_job_zero() -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        juid_for(DAY, 0)


@pytest.mark.parametrize(
    "text", ["", "kob", "26-11-21", "26-11-21-01", "26-11-21-000", "26-11-21-0001", "26-13-01-001", "26-02-30-001",
             "2026-11-21-001", "26-11-21-001\n", " 26-11-21-001", "26-11-21-1a1", "٢٦-11-21-001"]
)  # fmt: skip
def test_what_is_no_juid(text: str) -> None:
    assert not is_juid(text)


def test_juids_sort_by_number_not_by_text() -> None:
    juids = ["26-11-21-1000", "26-11-21-999", "26-11-20-5000", "26-11-21-001"]
    assert sorted(juids, key=juid_key) == ["26-11-20-5000", "26-11-21-001", "26-11-21-999", "26-11-21-1000"]


def test_nicknames_are_three_letters_and_can_be_said() -> None:
    vowels = "[aeiou]"
    for word in NICKNAMES:
        assert is_nickname(word)
        assert re.fullmatch(f"[^aeiou]{vowels}[^aeiou]|{vowels}[^aeiou]{vowels}", word), word


def test_every_nickname_comes_once_before_any_comes_again() -> None:
    assert len(NICKNAMES) > 1500
    assert {nickname_for(n) for n in range(len(NICKNAMES))} == set(NICKNAMES)
    assert nickname_for(7) == nickname_for(7 + len(NICKNAMES))


@pytest.mark.parametrize("word", ["fag", "nig", "tit", "job", "log", "run"])
def test_rude_and_confusing_words_are_left_out(word: str) -> None:
    assert word not in NICKNAMES


def test_nicknames_of_live_jobs_are_passed_over() -> None:
    chance = random.Random(1)
    in_use = set(chance.sample(NICKNAMES, len(NICKNAMES) - 3))
    for n in range(50):
        assert nickname_for(n, in_use.__contains__) not in in_use


def test_when_every_nickname_is_in_use_one_is_shared() -> None:
    assert nickname_for(5, lambda word: True) == nickname_for(5)


@pytest.mark.parametrize(("word", "nearest"), [("mnsit", "mnist"), ("LCOAL", "local"), ("zzz", None), ("", None)])
def test_the_nearest_word(word: str, nearest: str | None) -> None:
    assert suggest(word, ["mnist", "local", "lab"]) == nearest
    assert did_you_mean(word, ["mnist", "local", "lab"]) == (f"; did you mean {nearest}?" if nearest else "")


def test_no_candidates_no_suggestion() -> None:
    assert suggest("local", []) is None


def test_a_usage_problem_is_one_line_whatever_was_given() -> None:
    problem = UsageProblem("--env\nX", "found 'a\nb',\r\n expected K=V")
    assert str(problem) == "--env X: found 'a b', expected K=V"
    assert (problem.field, problem.message) == ("--env X", "found 'a b', expected K=V")
    assert str(UsageProblem("", "no command")) == "no command"
