// A new comparison, and those of the past.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { problemOf, type Problem } from "../api/source";
import { enterSession } from "../session_link";
import { Brand, ThemeButton } from "../topbar";
import { Glyph } from "../marks";
import { ProblemText } from "../problem";
import { startTheme } from "../state";
import * as api from "./api";
import { Pick } from "./controls";
import * as form from "./form";
import { loadPast, past, PastComparisons } from "./history";
import { Picker } from "./picker";
import { addressOf, isOver, jobs, newRequestId, ownRequest, Progress } from "./progress";
import { Side } from "./side";
import "./session.css";

const info = signal<api.SessionInfo | null>(null);
const failure = signal<Problem | null>(null);
const lost = signal(false);
const sending = signal(false);

/** What the server says of its jobs: the list of the past follows, and this tab's own is opened. */
function updateJobs(all: api.JobList): void {
  const before = new Map(jobs.value.map((job) => [job.id, job]));
  const ended = all.jobs.filter((job) => isOver(job) && before.get(job.id)?.state !== job.state);
  jobs.value = all.jobs;
  void form.follow(all.form);
  if (ended.length) void loadPast();
  const ownJob = all.jobs.find((job) => job.request_id === ownRequest());
  if (ownJob?.state === "done") {
    ownRequest(null);
    location.assign(addressOf(ownJob));
  }
}

async function begin(): Promise<() => void> {
  try {
    info.value = await api.session();
  } catch (error) {
    failure.value = problemOf(error);
    return () => undefined;
  }
  enterSession();
  form.begin(info.value);
  void loadPast();
  return api.listen(updateJobs, (isLost) => (lost.value = isLost));
}

async function compare(): Promise<void> {
  if (sending.value) return;
  form.tried.value = !form.ready.value;
  if (form.tried.value) {
    document.getElementById(form.missing.value.keys().next().value ?? "")?.focus();
    return;
  }
  sending.value = true;
  try {
    // Remembered before it is sent: events of the job, or a reload, may come before the answer.
    const id = newRequestId();
    ownRequest(id);
    const job = await api.compare({ ...form.spec.value, request_id: id });
    form.refusal.value = null;
    if (!jobs.value.some((one) => one.id === job.id)) jobs.value = [job, ...jobs.value];
  } catch (error) {
    form.refusal.value = problemOf(error);
  } finally {
    sending.value = false;
  }
}

export function Session(): JSX.Element {
  useEffect(() => {
    startTheme();
    document.title = "New comparison · Syncpoint";
    const ending = begin();
    const keys = (event: KeyboardEvent): void => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        void compare();
      }
    };
    addEventListener("keydown", keys);
    return () => {
      removeEventListener("keydown", keys);
      void ending.then((end) => end());
    };
  }, []);
  return (
    <div class="session">
      <header class="top">
        <Brand />
        <h1>New comparison</h1>
        <span class="sp" />
        <span class="dim">{location.host}</span>
        <div class="tools">
          <ThemeButton />
        </div>
      </header>
      <main class="body">
        <div class="wrap">
          {failure.value && <NoSession problem={failure.value} />}
          {info.value && (
            <>
              <div class="ab">
                <Side role="target" />
                <div class="swap">
                  <button type="button" title="Swap A and B" aria-label="Swap A and B" onClick={form.swap}>
                    <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
                      <path d="M1 4.5h11M9 1.5l3 3-3 3M13 9.5H2M5 6.5l-3 3 3 3" fill="none" stroke="currentColor" stroke-width="1.3" />
                    </svg>
                  </button>
                </div>
                <Side role="reference" />
              </div>
              <Go info={info.value} />
              <Progress />
              <PastComparisons />
              <datalist id="earlier-runs">
                {past.value?.runs.map((run) => (
                  <option value={run.path}>
                    {run.model} · {run.facts}
                  </option>
                ))}
              </datalist>
            </>
          )}
        </div>
      </main>
      {lost.value && (
        <div class="gone" role="alert">
          <b>The session at {location.host} does not answer.</b> What is on screen stays; it is tried again.
        </div>
      )}
      <Picker />
    </div>
  );
}

function Go({ info }: { info: api.SessionInfo }): JSX.Element {
  const warnings = form.command.value?.warnings ?? [];
  // What is wrong with a path is said beside it already.
  const refusal = Object.values(form.sides).some((side) => side.description.value?.problem) ? null : form.refusal.value;
  return (
    <section class="box" aria-label="Compare">
      <div class="go">
        <Choice label="Metric" value={form.metric.value} choices={info.metrics.map((one) => [one.id, one.title])} onChoose={(id) => (form.metric.value = id)} />
        <Choice label="Preset" value={form.preset.value} choices={info.presets.map((one) => [one, one])} onChoose={(id) => (form.preset.value = id)} />
        <Choice
          label="Introduced error"
          value={form.introduced.value}
          choices={["local", "replay", "off"].map((one) => [one, one])}
          onChoose={(id) => (form.introduced.value = id as api.Spec["introduced"])}
        />
        <Choice
          label="Record"
          value={form.record.value}
          choices={["values", "statistics", "digest"].map((one) => [one, one])}
          onChoose={(id) => (form.record.value = id as api.Spec["target"]["record"])}
        />
        <span class="sp" />
        <Copy />
        <button type="button" class="btn pri" disabled={sending.value} onClick={() => void compare()}>
          Compare <kbd>{navigator.platform.startsWith("Mac") ? "⌘⏎" : "Ctrl ⏎"}</kbd>
        </button>
      </div>
      {warnings.map((text) => (
        <p class="words warn" role="status">
          <Glyph level="moderate" /> {text}{" "}
          <button type="button" class="link" onClick={form.swap}>
            Swap them
          </button>
        </p>
      ))}
      {refusal && (
        <div class="words err" role="alert">
          <ProblemText problem={refusal} />
        </div>
      )}
    </section>
  );
}

function Choice({ label, value, choices, onChoose }: { label: string; value: string; choices: [string, string][]; onChoose: (id: string) => void }): JSX.Element {
  return (
    <label class="opt">
      <small>{label}</small>
      <Pick value={value} choices={choices} onChoose={onChoose} />
    </label>
  );
}

function Copy(): JSX.Element {
  const [copied, setCopied] = useState(false);
  const line = form.command.value?.command ?? "";
  useEffect(() => setCopied(false), [line]);
  const copy = async (): Promise<void> => {
    // What is in the form now: the line above may still be of what was there a moment ago.
    const now = await api.command(form.spec.value).then((answer) => answer.command, () => "");
    if (!now) return;
    await navigator.clipboard.writeText(now).then(
      () => setCopied(true),
      () => prompt("The same comparison as a command", now),
    );
  };
  return (
    <button type="button" class="btn" disabled={!line} title={line || "Fill in both configurations"} data-command={line} onClick={() => void copy()}>
      {copied ? "Copied" : "Copy as command"}
    </button>
  );
}

function NoSession({ problem }: { problem: Problem }): JSX.Element {
  return (
    <section class="box words err" role="alert">
      <ProblemText problem={problem} />
      <p>
        <button type="button" class="btn" onClick={() => history.back()}>
          Back
        </button>
      </p>
    </section>
  );
}
