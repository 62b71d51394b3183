// Comparisons that are asked for, being made, or just over.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { problemOf, type Level, type Problem } from "../api/source";
import { Glyph } from "../marks";
import { count } from "../numbers";
import { ProblemText } from "../problem";
import { short, verdictLevel } from "../topbar";
import * as api from "./api";
import { Look, Strip } from "./unfinished";

export const jobs = signal<readonly api.Job[]>([]);
const dismissed = signal<readonly string[]>([]);
const trouble = signal<Problem | null>(null);

export const isOver = (job: api.Job): boolean => job.state === "done" || job.state === "failed" || job.state === "cancelled";

const REQUEST = "syncpoint.request";

/** Remember what this tab asks for: the job is opened here when it is done. */
export function ownRequest(id?: string | null): string | null {
  try {
    if (id === null) sessionStorage.removeItem(REQUEST);
    else if (id !== undefined) sessionStorage.setItem(REQUEST, id);
    return sessionStorage.getItem(REQUEST);
  } catch {
    return null;
  }
}

export const newRequestId = (): string => Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16).padStart(8, "0")).join("");

export const addressOf = (job: api.Job): string => `/c/${job.comparison}${job.metric === "psnr" ? "" : `#metric=${job.metric}`}`;

export function Progress(): JSX.Element {
  const ownId = ownRequest();
  const live = jobs.value.filter((job) => !isOver(job));
  const running = live.filter((job) => job.state === "running");
  const queued = live.filter((job) => job.state === "queued").reverse();
  const over = jobs.value.filter((job) => isOver(job) && !dismissed.value.includes(job.id));
  const last = over.find((job) => job.request_id === ownId) ?? over[0];
  return (
    <>
      {running.map((job) => (
        <Card key={job.id} job={job} />
      ))}
      {queued.map((job) => (
        <Card key={job.id} job={job} />
      ))}
      {last && <Card key={last.id} job={last} />}
      {trouble.value && (
        <section class="box err" role="alert">
          <ProblemText problem={trouble.value} />
        </section>
      )}
    </>
  );
}

const TITLES: Record<api.Job["state"], string> = { queued: "Waiting", running: "Running", done: "Done", failed: "Failed", cancelled: "Cancelled" };

function Card({ job }: { job: api.Job }): JSX.Element {
  const [isSent, setIsSent] = useState(false);
  const seconds = useSeconds(job);
  useEffect(() => setIsSent(false), [job.state]);
  const act = (what: (id: string) => Promise<api.Job>): void => {
    setIsSent(true);
    what(job.id).then(
      () => (trouble.value = null),
      (error: unknown) => {
        setIsSent(false);
        trouble.value = problemOf(error);
      },
    );
  };
  const { level, guilt } = verdictLevel(job.verdict);
  const measured = Object.keys(job.counts).length > 0 && (job.state === "running" || (isOver(job) && job.can_resume));
  return (
    <section class={`box job ${job.state}`} aria-label={`${TITLES[job.state]}: ${job.folder.slice(job.folder.lastIndexOf("/") + 1)}`} data-state={job.state}>
      <header>
        {job.state === "running" && <span class="spin" aria-hidden="true" />}
        {job.state === "done" && <Glyph level={level} guilt={guilt} />}
        <h2 aria-live="polite">{job.state === "running" && isSent ? "Cancelling" : TITLES[job.state]}</h2>
        <span class="dim cut">
          {short(job.target)} with {short(job.reference)}
          {job.state !== "queued" && ` · ${time(seconds)}`}
        </span>
        <span class="sp" />
        <SoFar job={job} />
        {job.state === "done" && (
          <a class="btn s" href={addressOf(job)}>
            Open
          </a>
        )}
        {measured && <Look folder={job.folder} name={short(job.folder)} onProblem={(problem) => (trouble.value = problem)} />}
        {!isOver(job) && (
          <button type="button" class="btn s" disabled={isSent} onClick={() => act(api.cancel)}>
            Cancel
          </button>
        )}
        {isOver(job) && job.can_resume && (
          <button type="button" class="btn s" disabled={isSent} onClick={() => act(api.resume)}>
            Resume
          </button>
        )}
        {isOver(job) && (
          <button type="button" class="btn s" onClick={() => (dismissed.value = [...dismissed.value, job.id])}>
            Dismiss
          </button>
        )}
      </header>
      {job.state !== "queued" && <Stages job={job} />}
      {job.drift && <Strip drift={job.drift} />}
      {job.problem && <Failed job={job} problem={job.problem} />}
      {job.state === "cancelled" && (
        <p class="words dim">{job.can_resume ? `The finished part is saved in ${short(job.folder)}; Resume continues from there.` : "Nothing was saved."}</p>
      )}
      {job.warnings.length > 0 && (
        <ul class="words warn">
          {job.warnings.map((text) => (
            <li>
              <Glyph level="moderate" /> {text}
            </li>
          ))}
        </ul>
      )}
      {job.state === "done" && job.headline && <p class="words mid">{job.headline}</p>}
      {job.log.length > 0 && <Log job={job} />}
    </section>
  );
}

function Failed({ job, problem }: { job: api.Job; problem: Problem }): JSX.Element {
  const stageIndex = job.stages.findIndex((one) => one.state === "failed");
  const stage = job.stages[stageIndex];
  return (
    <div class="words failure" role="alert" style={stage && { "--at": stageIndex, "--of": job.stages.length }}>
      {stage && <b>{stage.opens ? `The ${stage.stage} cannot be opened` : `${titleOf(stage)} failed`}</b>}
      <ProblemText problem={problem} />
    </div>
  );
}

function SoFar({ job }: { job: api.Job }): JSX.Element | null {
  const levels = (["large", "moderate", "close", "none"] as Level[]).filter((level) => job.counts[level]);
  if (!levels.length || job.state !== "running") return null;
  return (
    <span class="sofar" title="By total error so far; which ops only inherit it is known at the end">
      {levels.map((level) => (
        <span>
          <Glyph level={level} /> {count(job.counts[level] as number)}
        </span>
      ))}
    </span>
  );
}

type Stage = api.Job["stages"][number];
const STAGES: Record<Stage["stage"], string> = {
  reference: "Capture reference",
  target: "Capture target",
  match: "Match",
  measure: "Measure",
  introduced: "Introduced error",
  diagnosis: "Diagnosis",
};
const UNITS: Record<Stage["stage"], string> = { reference: "ops", target: "ops", match: "pairs", measure: "sync points", introduced: "ops", diagnosis: "findings" };

const STATES: Record<Stage["state"], string> = { waits: "wait", now: "now", done: "", "left out": "wait", failed: "failed", stopped: "stopped" };
const CROSS = "m2 2 6 6M8 2 2 8";
const MARKS: Partial<Record<Stage["state"], string>> = { done: "m1.5 5.5 2.3 2.3 4.7-5.3", failed: CROSS, stopped: "M3 2v6M7 2v6" };

function titleOf(stage: Stage): string {
  return stage.opens ? STAGES[stage.stage].replace("Capture", "Open") : STAGES[stage.stage];
}

function Stages({ job }: { job: api.Job }): JSX.Element {
  return (
    <ol class="stages" aria-label="Stages">
      {job.stages.map((stage) => {
        const under = stage.state === "now" || stage.state === "stopped";
        const share = stage.state === "done" || stage.state === "failed" ? 1 : under && stage.total ? stage.done / stage.total : 0;
        const busy = stage.state === "now" && !stage.total;
        const mark = MARKS[stage.state];
        return (
          <li class={`st ${STATES[stage.state]} ${busy ? "busy" : ""}`} data-stage={stage.stage} data-state={stage.state}>
            <div class="tr">
              <i style={{ width: `${share * 100}%` }} />
            </div>
            <b>
              {mark && (
                <svg width="10" height="10" viewBox="0 0 10 10" aria-label={stage.state} role="img">
                  <path d={mark} fill="none" stroke="currentColor" stroke-width="1.6" />
                </svg>
              )}
              {titleOf(stage)}
            </b>
            <span>{stageText(stage)}</span>
          </li>
        );
      })}
    </ol>
  );
}

function stageText(stage: Stage): string {
  if (stage.state === "waits") return "waiting";
  if (stage.state === "left out") return "skipped";
  if (stage.state === "failed" || stage.state === "stopped") {
    const reached = stage.total ? ` at ${count(stage.done)} of ${count(stage.total)}` : "";
    return `${stage.state}${reached}${stage.seconds ? ` after ${time(stage.seconds)}` : ""}`;
  }
  const unit = UNITS[stage.stage];
  if (stage.state === "now") return stage.total ? `${count(stage.done)} of ${count(stage.total)} ${unit}` : stage.done ? `${count(stage.done)} ${unit}` : "running";
  if (stage.stage === "introduced" && !stage.done) return "unknown";
  return `${count(stage.done)} ${stage.stage === "introduced" ? "sync points" : unit} · ${time(stage.seconds)}`;
}

function Log({ job }: { job: api.Job }): JSX.Element {
  const lines = job.log.slice(isOver(job) && job.state === "done" ? -3 : -6);
  return (
    <div class="log" tabIndex={0} role="log" aria-label="Log">
      {lines.map((line) => (
        <div>
          <span class="dim">{`${line.seconds.toFixed(1)} s`.padStart(7)}</span> {(line.stage ? STAGES[line.stage as keyof typeof STAGES]?.toLowerCase() : "model").padEnd(18)} {line.text}
        </div>
      ))}
    </div>
  );
}

/** The seconds of a job, which go on between two events. */
function useSeconds(job: api.Job): number {
  const [now, setNow] = useState(0);
  useEffect(() => {
    setNow(0);
    if (job.state !== "running") return;
    const began = Date.now();
    const timer = setInterval(() => setNow((Date.now() - began) / 1000), 500);
    return () => clearInterval(timer);
  }, [job.version, job.state]);
  return job.seconds + now;
}

export function time(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
