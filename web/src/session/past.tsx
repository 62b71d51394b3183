// Comparisons of the past.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { problemOf, type Problem } from "../api/source";
import { Glyph } from "../marks";
import { metricText, percent } from "../numbers";
import * as api from "./api";
import { Words } from "./controls";

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
  const wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = all.filter((one) => {
    const said = `${one.name} ${one.target} ${one.target_facts} ${one.reference} ${one.first} ${one.verdict}`.toLowerCase();
    return wanted.every((word) => said.includes(word));
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
      {trouble.value && <Words problem={trouble.value} />}
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
              <th class="mark">
                <span class="hidden">verdict</span>
              </th>
              <th>target</th>
              <th>reference</th>
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
  if (one.problem)
    return (
      <tr title={`${one.path}\nexpected ${one.problem.expected}; found ${one.problem.found}; ${one.problem.cure}`}>
        <td>
          <Glyph level="none" />
        </td>
        <td class="cut">{one.name}</td>
        <td colSpan={5} class="mid cut">
          {one.problem.found}
          {one.problem.cure && ` · ${one.problem.cure}`}
        </td>
        <td class="num dim">{when(one.when)}</td>
      </tr>
    );
  return (
    <tr title={one.path}>
      <td>
        <Glyph level={one.level} guilt={one.guilt} />
      </td>
      <td class="cut">
        <a href={`/c/${one.id}`}>{one.target}</a> <span class="dim">{one.target_facts}</span>
      </td>
      <td class="cut">{one.reference}</td>
      <td class="mid cut">{one.first || "–"}</td>
      <td class="num">{one.output === null ? "n/a" : metricText("psnr", one.output)}</td>
      <td class="num">{one.coverage === null ? "–" : percent(one.coverage)}</td>
      <td class="num">{one.guilty === null ? <span title="introduced error is not known">–</span> : one.guilty}</td>
      <td class="num dim">{when(one.when)}</td>
    </tr>
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
