"""Comparisons of a session: made in a process of their own, cancelled whole, never half."""

import http.client
import json
import re
import shutil
import signal
import time

import pytest

import syncpoint as sp
from helpers.session_server import Server, alive, gone, write_dumps, write_models
from syncpoint.run.storage.journal import JournalWriter, encode_frame

DUMPS = {"target": {"path": "target.npz"}, "reference": {"path": "reference.npz"}}
OVER = ("done", "failed", "cancelled")


def models(target):
    return {
        "target": {"path": f"net.py:{target}"},
        "reference": {"path": "reference.npz"},
        "inputs": "random:0",
        "shapes": ["x=2,16"],
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("session")
    write_dumps(folder)
    write_models(folder)
    made = Server(folder)
    made.folder = folder
    yield made
    assert made.stop() in (0, -signal.SIGTERM)


def test_a_comparison_is_made_saved_and_listed(server):
    _, job = server.ask("/jobs", DUMPS)
    assert job["state"] in ("queued", "running")
    job = server.until(job["id"], *OVER)
    assert (job["state"], job["verdict"], job["problem"]) == ("done", "large", None)
    assert [s["state"] for s in job["stages"]] == ["done"] * 6
    assert sum(job["counts"].values()) == 2
    kept = sp.open_comparison(server.folder / "comparisons" / "target_against_reference.cmp")
    assert kept.verdict.value == "large"
    _, past = server.ask("/past")
    line = past["comparisons"][0]
    assert (line["id"], line["verdict"], line["coverage"]) == (job["comparison"], "large", 1.0)
    assert line["first"] == "b"
    # A second one of the same name is put beside it.
    _, again = server.ask("/jobs", DUMPS)
    again = server.until(again["id"], *OVER)
    assert again["folder"].endswith("target_against_reference-2.cmp")
    assert again["comparison"] != job["comparison"]


def test_a_model_that_raises_is_an_error_in_words_and_leaves_nothing(server):
    _, job = server.ask("/jobs", models("raising"))
    job = server.until(job["id"], *OVER)
    assert job["state"] == "failed"
    assert "no weights here" in job["problem"]["problem"]
    assert not job["can_resume"]
    assert not list((server.folder / "comparisons").glob("net_raising*"))


@pytest.mark.parametrize(
    ("spec", "stage"),
    [
        (models("raising"), "target"),
        (models("crashing"), "target"),
        ({**models("shipped"), "inputs": ""}, "target"),
        ({**DUMPS, "target": {"path": "damaged.npz"}}, "target"),
        (
            {
                "target": {"path": "target.npz"},
                "reference": {"path": "net.py:raising"},
                "inputs": "net.py:inputs",
            },
            "reference",
        ),
        ({**DUMPS, "reference_model": "net.py:reference"}, "reference"),
    ],
)
def test_the_stage_that_failed_is_marked(server, spec, stage):
    (server.folder / "damaged.npz").write_bytes(b"PK\x03\x04 no archive")
    _, job = server.ask("/jobs", spec)
    job = server.until(job["id"], *OVER)
    assert job["state"] == "failed"
    assert job["problem"]["problem"]
    assert [s["stage"] for s in job["stages"] if s["state"] == "failed"] == [stage]
    models = {side for side in ("target", "reference") if ".py:" in spec[side]["path"]}
    sides = [s for s in job["stages"] if s["stage"] in ("target", "reference")]
    assert {s["stage"] for s in sides if not s["opens"]} == models
    if spec["target"]["path"] == "damaged.npz":
        assert "cut off or damaged" in job["problem"]["problem"]
        assert "damaged.npz" in job["problem"]["problem"]
    assert not [s for s in job["stages"] if s["state"] == "now"]


def test_a_model_that_crashes_takes_nothing_with_it(server):
    _, job = server.ask("/jobs", models("crashing"))
    job = server.until(job["id"], *OVER)
    assert job["state"] == "failed"
    assert "SIGSEGV" in job["problem"]["problem"]
    assert "last words" in [line["text"] for line in job["log"]]
    assert server.ask("/jobs")[0] == 200
    assert not list((server.folder / "comparisons").glob("net_crashing*"))


def test_cancelling_ends_all_that_was_started_and_the_next_one_goes_on(server):
    _, first = server.ask("/jobs", models("hanging"))
    _, second = server.ask("/jobs", DUMPS)
    _, third = server.ask("/jobs", DUMPS)
    first = server.until(first["id"], says="waiting with")
    assert first["state"] == "running"
    assert server.ask(f"/jobs/{second['id']}")[1]["state"] == "queued"
    assert server.ask(f"/jobs/{third['id']}/cancel", post=True)[1]["state"] == "cancelled"
    pid = int(first["log"][-1]["text"].split()[-1])
    assert alive(pid)
    server.ask(f"/jobs/{first['id']}/cancel", post=True)
    first = server.until(first["id"], *OVER, within=10)
    assert (first["state"], first["problem"]) == ("cancelled", None)
    assert {s["stage"]: s["state"] for s in first["stages"]}["target"] == "stopped"
    assert gone(pid)
    assert not list((server.folder / "comparisons").glob("net_hanging*"))
    assert server.until(second["id"], *OVER)["state"] == "done"
    assert not [p for p in (server.folder / "comparisons").iterdir() if not any(p.iterdir())]
    assert all(one["problem"] is None for one in server.ask("/past")[1]["comparisons"])


def test_a_check_opens_a_model_and_says_what_it_takes(server):
    _, seen = server.ask("/check", {"path": "net.py:shipped"})
    assert (seen["sure"], seen["problem"]) == (True, None)
    assert re.match(r"opens in \d+\.\d s; takes x$", seen["text"])
    assert [one["name"] for one in seen["inputs"]] == ["x"]
    _, seen = server.ask("/check", {"path": "net.py:raising"})
    assert "no weights here" in seen["problem"]["problem"]
    assert server.ask("/check", {"path": "../net.py:shipped"})[0] == 404


def test_a_page_that_reconnects_is_told_what_it_missed(server):
    _, jobs = server.ask("/jobs")

    def listen(known=""):
        connection = http.client.HTTPConnection(server.base.removeprefix("http://"), timeout=5)
        headers = {"x-syncpoint-token": server.token, "last-event-id": known}
        connection.request("GET", "/api/session/events", headers=headers)
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        return answer

    def event(answer):
        lines = {}
        while not lines.get("data"):
            name, _, value = answer.readline().decode().rstrip("\n").partition(": ")
            lines[name] = value
        return lines

    first = event(listen())
    assert json.loads(first["data"])["version"] == jobs["version"]
    # Nothing new: silence. Something new while away: all of it at once.
    quiet = listen(first["id"])
    quiet.readline(), quiet.readline()
    with pytest.raises(TimeoutError):
        quiet.fp.raw._sock.settimeout(0.6)
        quiet.readline()
    _, job = server.ask("/jobs", DUMPS)
    server.until(job["id"], *OVER)
    told = json.loads(event(listen(first["id"]))["data"])
    assert told["jobs"][0]["id"] == job["id"]
    assert told["jobs"][0]["state"] == "done"


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/jobs", DUMPS, {"content-type": "text/plain"}),
        ("/jobs", DUMPS, {"content-type": "application/x-www-form-urlencoded"}),
        ("/jobs", DUMPS, {"x-syncpoint-token": "wrong"}),
        ("/jobs", DUMPS, {"origin": "http://evil.example"}),
        ("/jobs", {**DUMPS, "more": 1}, {}),
        ("/jobs", {"target": {"path": "x" * 5000}, "reference": {"path": "y"}}, {}),
        ("/jobs", {**DUMPS, "reference": {"path": "/etc/passwd"}}, {}),
        ("/jobs", {**DUMPS, "inputs": "x" * (2 << 20)}, {}),
        ("/jobs", [], {}),
        ("/jobs/nothing/cancel", {}, {}),
        ("/jobs/nothing/resume", {}, {}),
        ("/past/resume", {"path": "comparisons/nothing.cmp"}, {}),
        ("/past/resume", {"path": "../x.cmp"}, {}),
        ("/past/resume", {"path": "begun.cmp"}, {}),
        ("/past/resume", {"path": "comparisons/.session"}, {}),
        ("/form", {"x": "y" * 5000}, {}),
        ("/form", {"target.path": "x"}, {"content-type": "text/plain"}),
        ("/files?path=/etc", None, {}),
        ("/files?path=..", None, {}),
    ],
)
def test_what_is_not_allowed_is_refused(server, path, body, headers):
    # Begun elsewhere: its log says what was asked for, which is no reason to run it.
    sides = {"target": "net.py:shipped", "reference": "net.py:reference"}
    (server.folder / "begun.cmp").mkdir(exist_ok=True)
    JournalWriter(
        server.folder / "begun.cmp" / "progress.log", encode_frame("asked", sides)
    ).close()
    before = server.ask("/jobs")[1]["version"]
    try:
        status, _ = server.ask(path, body, **headers)
    except (ConnectionError, OSError):
        status = 413  # cut off while it was still talking
    assert 400 <= status < 500
    assert server.ask("/jobs")[1]["version"] == before


def test_what_a_dead_server_ran_ends_too(tmp_path):
    write_dumps(tmp_path)
    write_models(tmp_path)
    server = Server(tmp_path)
    try:
        _, job = server.ask("/jobs", models("hanging"))
        pid = int(server.until(job["id"], says="waiting with")["log"][-1]["text"].split()[-1])
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(10)
        assert gone(pid)
    finally:
        server.process.kill()


def test_what_was_measured_before_a_cancellation_is_gone_on_from(tmp_path, monkeypatch):
    from syncpoint.server.allowed_files import AllowedFolders
    from syncpoint.server.form_request import RequestedComparison
    from syncpoint.server.job_queue import JobQueue
    from syncpoint.server.session_schema import SessionSpec

    write_dumps(tmp_path)
    monkeypatch.chdir(tmp_path)
    plan = RequestedComparison.of(SessionSpec(**DUMPS), AllowedFolders([tmp_path]))
    jobs = JobQueue(tmp_path / "out", lambda path: path.name)
    job = jobs.add(plan, plan.build_command)
    waited(job)
    # As if the process had been killed after the measuring: its log is there, its end is not.
    stopped(plan, job.out)
    job.state, job.comparison, job.finished, job.can_resume = "cancelled", "", False, True
    jobs.resume(job.id)
    waited(job)
    assert (job.state, job.problem) == ("done", None)
    assert sp.open_comparison(job.out).verdict.value == "large"
    jobs.close()


def waited(job):
    end = time.monotonic() + 30
    while job.state not in OVER and time.monotonic() < end:
        time.sleep(0.05)


def stopped(plan, out):
    shutil.rmtree(out)
    call = plan.build_call()

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        target, reference = call.pop("target"), call.pop("reference")
        sp.compare(target, reference, **call, out=out, store=out, progress=stop)
    assert (out / "progress.log").is_file()
