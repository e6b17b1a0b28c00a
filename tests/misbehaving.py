"""A testee that knows all answers and misbehaves in one way, once.

    python misbehaving.py ANSWERS WAY NUMBER

ANSWERS is a JSON file with the answers to the questions 1, 2, ...; WAY is a function of this file, which is called
instead of answering question NUMBER.  A way that begins with `hello_` is called instead of saying hello, and question
NUMBER ends the process.  Beside the file with the answers it notes how often it was started, and its processes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ANSWERS, WAY, NUMBER = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
HELLO = {"protocol": 1, "name": "misbehaving", "version": "0", "lacks": []}
known = json.loads(ANSWERS.read_text())


def note(pid):
    with ANSWERS.with_suffix(".pids").open("a") as file:
        file.write(f"{pid}\n")


def write(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def line(message):
    write(json.dumps(message).encode() + b"\n")


def answer(number, **more):
    line({"id": number, "answers": known[number - 1], **more})


def lie(result):
    """The right answer, but for the first result."""
    def way(number):
        answers = json.loads(json.dumps(known[number - 1]))
        answers[0][0][1] = result
        line({"id": number, "answers": answers})
    return way


def sleeper(*arguments):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", *arguments])
    note(child.pid)


# How it ends.

def exits(number):
    sys.exit(3)


def exits_well(number):
    sys.exit(0)


def raises(number):
    raise OSError("the file is on fire")


def aborts(number):
    os.abort()


def is_killed(number):
    os.kill(os.getpid(), signal.SIGKILL)


def exits_after_its_answer(number):
    answer(number)
    os._exit(0)


def exits_and_leaves_a_process_with_its_pipes(number):
    sleeper()
    os._exit(5)


def exits_in_the_middle_of_a_line(number):
    write(b"terminate called after")
    sys.exit(3)


def closes_its_output(number):
    os.close(1)
    time.sleep(1000)


def closes_its_input(number):
    os.close(0)
    answer(number)
    time.sleep(1000)


def hello_and_closes_its_input_in_the_middle_of_a_question():
    line(HELLO)
    os.read(0, 10)
    os.close(0)
    time.sleep(1000)


# What takes too long.

def hangs(number):
    time.sleep(1000)


def hangs_and_refuses_to_end(number):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)


def hangs_with_a_process(number):
    sleeper()
    time.sleep(1000)


def prints_for_ever(number):
    while True:
        write(b"still thinking\n")


def prints_for_ever_on_stderr(number):
    while True:
        os.write(2, b"still thinking\n" * 100)


# What is too much.

def sends_an_endless_line(number):
    while True:
        write(b'{"id": 1, ' * 1000)


def sends_20_million_numbers(number):
    write(b'{"id": %d, "answers": [[[0, {"dtype": "float32", "shape": [20000000], "data": [1' % number)
    for _ in range(2000):
        write(b", 1" * 10_000)
    write(b"]}]]]}\n")


def prints_50_mb_on_stderr(number):
    for _ in range(50):
        os.write(2, b"x" * 999_999 + b"\n")
    answer(number)


def prints_50_mb_on_stdout(number):
    for _ in range(50):
        write(b"x" * 999_999 + b"\n")
    answer(number)


def raises_a_text_of_a_megabyte(number):
    lie({"error": "crash", "message": "x" * 1_000_000})(number)


# What it prints.

def prints_a_line(number):
    print("debug: the sum is 3", flush=True)
    answer(number)


def prints_blank_lines(number):
    write(b"\n\r\n  \n")
    answer(number)


def prints_json(number):
    line({"level": "info", "text": "working"})
    line([1, 2])
    line(7)
    answer(number)


def prints_control_characters(number):
    os.write(2, b"\x1b[2J\x1b]0;title\x07 caf\xe9 \x00\n")
    lie({"object": "\x1b[2J"})(number)


# Answers to other questions.

def answers_twice(number):
    answer(number)
    answer(number)


def answers_twice_differently(number):
    answer(number)
    lie({"error": "crash"})(number)


def answers_the_one_before_again(number):
    answer(number - 1)
    answer(number)


def answers_the_next_one(number):
    answer(number + 1)


def answers_with_a_text_for_an_id(number):
    line({"id": str(number), "answers": known[number - 1]})


def answers_with_a_float_for_an_id(number):
    line({"id": number + 0.5, "answers": known[number - 1]})


def answers_without_an_id(number):
    line({"answers": known[number - 1]})


def answers_with_null_for_an_id(number):
    line({"id": None, "answers": known[number - 1]})


# Lines that are not JSON.

def sends_half_a_line(number):
    write(b'{"id": %d, "answers":\n' % number)


def sends_python(number):
    write(str({"id": number, "answers": known[number - 1]}).encode() + b"\n")


def sends_nan(number):
    lie({"float": float("nan")})(number)


def sends_utf_16(number):
    write((json.dumps({"id": number, "answers": known[number - 1]}) + "\n").encode("utf-16"))


def sends_utf_16_without_a_mark(number):
    write((json.dumps({"id": number, "answers": known[number - 1]}) + "\n").encode("utf-16-le"))


def sends_latin_1(number):
    write('{"id": %d, "skip": "café"}\n'.encode("latin-1") % number)


def sends_a_tower(number):
    write(b'{"id": %d, "answers": ' % number + b"[" * 100_000 + b"]" * 100_000 + b"}\n")


def sends_an_integer_of_10_000_digits(number):
    write(b'{"id": %d, "answers": [[[0, {"int": %s}]]]}\n' % (number, b"9" * 10_000))


# Answers that have another form.

def says_nothing(number):
    line({"id": number})


def says_two_things(number):
    answer(number, skip="no time")


def skips_without_a_reason(number):
    line({"id": number, "skip": ""})


def does_not_support_a_list(number):
    line({"id": number, "unsupported": ["x"]})


def answers_with_a_number(number):
    line({"id": number, "answers": 3})


def answers_for_no_worker(number):
    line({"id": number, "answers": []})


def answers_for_three_workers(number):
    line({"id": number, "answers": [*known[number - 1], [], []]})


def answers_with_an_object(number):
    line({"id": number, "answers": [{"0": 1}]})


def answers_a_statement_that_does_not_exist(number):
    line({"id": number, "answers": [[*known[number - 1][0], [77, {"int": 1}]]]})


def answers_a_statement_twice(number):
    line({"id": number, "answers": [[*known[number - 1][0], known[number - 1][0][-1]]]})


def answers_a_statement_named_by_a_text(number):
    line({"id": number, "answers": [[["0", None]]]})


def answers_too_little(number):
    line({"id": number, "answers": [[] for _ in known[number - 1]]})


def ragged(number):
    lie({"dtype": "float32", "shape": [2, 2], "data": [1.0, 2.0, 3.0]})(number)


def of_an_unknown_dtype(number):
    lie({"dtype": "float31", "shape": [], "data": [1.0]})(number)


def of_a_list_of_dtypes(number):
    lie({"dtype": ["float32"], "shape": [], "data": [1.0]})(number)


def of_a_negative_shape(number):
    lie({"dtype": "float32", "shape": [-1, -1], "data": [1.0]})(number)


def of_texts_for_numbers(number):
    lie({"dtype": "float32", "shape": [1], "data": ["one"]})(number)


def too_large_for_a_float(number):
    lie({"float": 10**400})(number)


def too_many_digits(number):
    lie({"int": "9" * 10_000})(number)


def a_bare_number(number):
    lie(3)(number)


def a_bare_list(number):
    lie([1, 2])(number)


def an_unknown_kind(number):
    lie({"error": "banana"})(number)


def an_error_that_is_a_list(number):
    lie({"error": ["value"], "message": {"a": 1}})(number)


def half_a_character(number):
    lie("\ud800")(number)


def slices_of_nothing(number):
    lie({"slices": {}})(number)


def an_object_of_objects(number):
    lie({"object": {"a": 1}})(number)


def nested_deeply(number):
    result = None
    for _ in range(400):
        result = {"list": [result]}
    lie(result)(number)


# How it begins.

def hello_never():
    time.sleep(1000)


def hello_exits():
    os.write(2, b"no license\n")
    sys.exit(7)


def hello_after_a_banner():
    print("Welcome!\n\n{}\n[1]\n" + json.dumps({"level": "info"}), flush=True)
    line(HELLO)


def hello_of_protocol_99():
    line({**HELLO, "protocol": 99})


def hello_without_a_name():
    line({"protocol": 1})


def hello_lacks_quantum():
    line({**HELLO, "lacks": ["quantum", "losses"]})


def hello_lacks_a_number():
    line({**HELLO, "lacks": 3})


def hello_has_and_lacks():
    line({**HELLO, "has": []})


def hello_with_a_mark():
    write(b"\xef\xbb\xbf" + json.dumps(HELLO).encode() + b"\n")


def hello_only_once():
    if starts() > 1:
        sys.exit("the license has expired")
    line(HELLO)


def hello_not_the_second_time():
    if starts() == 2:
        sys.exit("the port is in use")
    line(HELLO)


def starts():
    return ANSWERS.with_suffix(".starts").stat().st_size


def main():
    note(os.getpid())
    with ANSWERS.with_suffix(".starts").open("a") as file:
        file.write("x")
    way = globals()[WAY]
    sys.stdin.readline()
    if WAY.startswith("hello_"):
        way()
    else:
        line(HELLO)
    for question in sys.stdin:
        number = json.loads(question)["id"]
        if number != NUMBER:
            answer(number)
        elif WAY.startswith("hello_"):
            sys.exit(3)
        else:
            way(number)


if __name__ == "__main__":
    main()
