// Comparisons of the past.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { problemOf, type Problem } from "../api/source";
import { Glyph } from "../marks";
import { metricText, percent } from "../numbers";
import { ProblemText, problemLine } from "../problem";
import { device } from "../topbar";
import * as api from "./api";
import { Look } from "./unfinished";

export const past = signal<api.Past | null>(null);
const trouble = signal<Problem | null>(null);
const text = signal("");

export async function loadPast(): Promise<void> {
  try {
    past.value = await api.past();
    trouble.value = null;
  } catch (error) {
    trouble.value = problemOf(error);
  }
}

export function PastComparisons(): JSX.Element {
  const all = past.value?.comparisons ?? [];
  const searchWords = text.value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = all.filter((one) => {
    const searchText = `${one.name} ${one.target} ${one.target_facts} ${one.reference} ${one.first} ${one.verdict}`.toLowerCase();
    return searchWords.every((word) => searchText.includes(word));
  });
  return (
    <section class="box" aria-label="Past comparisons">
      <header>
        <h2>Past comparisons</h2>
        <span class="dim">
          {past.value && `${all.length} · new ones go to ${past.value.folder}`}
        </span>
        <span class="sp" />
        <div class="search">
          <input type="search" aria-label="Filter comparisons" placeholder="Filter" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        </div>
      </header>
      {trouble.value && <ProblemText problem={trouble.value} />}
      {past.value && all.length === 0 && <p class="words dim">None yet. What you compare is kept in {past.value.folder} and listed here.</p>}
      {all.length > 0 && shown.length === 0 && (
        <p class="words dim">
          The filter hides all {all.length}.{" "}
          <button type="button" class="link" onClick={() => (text.value = "")}>
            Show them
          </button>
        </p>
      )}
      {shown.length > 0 && (
        <table class="pt">
          <thead>
            <tr>
              <th>name</th>
              <th>target</th>
              <th>reference</th>
              <th>verdict</th>
              <th>first divergence</th>
              <th class="num">output, dB</th>
              <th class="num">coverage</th>
              <th class="num">guilty</th>
              <th class="num">when</th>
            </tr>
          </thead>
          <tbody>
            {shown.slice(0, 200).map((one) => (
              <Line key={one.path} one={one} />
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Line({ one }: { one: api.PastComparison }): JSX.Element {
  const { problem } = one;
  return (
    <tr title={problem ? `${one.path}\n${problemLine(problem)}` : one.path}>
      <td class="cut">{problem ? one.name : <a href={`/c/${one.id}`}>{one.name}</a>}</td>
      <td class="cut">
        {one.target || "–"} <span class="dim">{device(one.target_facts)}</span>
      </td>
      <td class="cut">{one.reference || "–"}</td>
      {problem ? (
        <td colSpan={5} class="mid">
          <div class="cells">
            <Glyph level="none" />
            <span class="why">
              {brief(problem.problem)}
              {problem.cure && !one.can_resume && `. Fix: ${problem.cure}`}
            </span>
            <span class="sp" />
            {one.can_resume && one.measured && <Look folder={one.path} name={one.name} onProblem={(problem) => (trouble.value = problem)} />}
            {one.can_resume && <ResumeButton path={one.path} name={one.name} />}
          </div>
        </td>
      ) : (
        <>
          <td>
            <div class="cells">
              <Glyph level={one.level} guilt={one.guilt} />
              <span>{one.verdict === "none" ? "no verdict" : one.verdict_text}</span>
            </div>
          </td>
          <td class="mid cut">{one.first || "–"}</td>
          <td class="num">{one.output === null ? "n/a" : metricText("psnr", one.output)}</td>
          <td class="num">{one.coverage === null ? "–" : percent(one.coverage)}</td>
          <td class="num">{one.guilty === null ? <span title="introduced error is unknown">–</span> : one.guilty}</td>
        </>
      )}
      <td class="num dim">{when(one.when)}</td>
    </tr>
  );
}

/** Without the details in brackets at the end; the tooltip has them. */
function brief(sentence: string): string {
  return sentence.replace(/ \(.*\)$/s, "");
}

function ResumeButton({ path, name }: { path: string; name: string }): JSX.Element {
  const [isSent, setIsSent] = useState(false);
  const act = (): void => {
    setIsSent(true);
    api.resumePast(path).then(
      () => {
        trouble.value = null;
        void loadPast();
      },
      (error: unknown) => {
        setIsSent(false);
        trouble.value = problemOf(error);
      },
    );
  };
  return (
    <button type="button" class="btn s" disabled={isSent} aria-label={`Resume ${name}`} title="Run its models again and continue from where it was interrupted" onClick={act}>
      Resume
    </button>
  );
}

/** "17:20", "yesterday, 17:20", "12 Nov, 09:41", "12 Nov 2024". */
function when(seconds: number): string {
  if (!seconds) return "";
  const then = new Date(seconds * 1000);
  const clock = then.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(then).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days === 0) return `today, ${clock}`;
  if (days === 1) return `yesterday, ${clock}`;
  const day = then.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return then.getFullYear() === new Date().getFullYear() ? `${day}, ${clock}` : `${day} ${then.getFullYear()}`;
}
