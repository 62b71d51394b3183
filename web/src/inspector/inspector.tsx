// Everything about the selected sync point, in the order of the questions people ask.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { gone } from "../api/live";
import type { Problem, RowDetail } from "../api/source";
import { detail, late, problem, startDetail } from "../row_detail";
import { step } from "../keyboard";
import { count } from "../numbers";
import { ProblemText } from "../problem";
import * as state from "../state";
import { Bars } from "./bars";
import { Digest, Statistics } from "./without_values";
import { Spread, useDistribution } from "./distribution";
import { Fault, Pair } from "./head";
import { Region } from "./region";
import "./inspector.css";
import { Metrics } from "./metrics";
import { More } from "./more";
import { Tensors } from "./tensors";
import { Worst } from "./worst";

export function Inspector(): JSX.Element {
  useEffect(startDetail, []);
  const found = detail.value;
  const total = state.overview.value?.rows ?? 0;
  return (
    <aside class="pane insp" aria-label="Inspector">
      <div class="head">
        <h2>Inspector</h2>
        <span class="sp" />
        {found && (
          <span class="dim" data-testid="place" title="Place in execution order">
            {count(found.brief.order + 1)} of {count(total)}
          </span>
        )}
        <button class="ico s" title="Previous (↑)" aria-label="Previous sync point" onClick={() => void step(-1)}>
          ‹
        </button>
        <button class="ico s" title="Next (↓)" aria-label="Next sync point" onClick={() => void step(1)}>
          ›
        </button>
        <button class="btn s" title="Back to what to look at first (Esc)" onClick={() => state.select(null)}>
          Findings
        </button>
      </div>
      <div class="scroll" tabIndex={0} aria-label="The selected sync point" aria-busy={late.value}>
        {problem.value && <Trouble what="This sync point cannot be shown" problem={problem.value} />}
        {!found && late.value && <Loading />}
        {found && <Sections found={found} />}
      </div>
    </aside>
  );
}

function Sections({ found }: { found: RowDetail }): JSX.Element {
  const drawn = !found.missing && found.basis === "values";
  const spread = useDistribution(found, drawn);
  return (
    <>
      <div class="sec">
        <Pair found={found} />
        <Fault found={found} />
        <Region found={found} />
      </div>
      {found.bars.total !== null && <Bars found={found} />}
      {found.basis === "statistics" && <Statistics found={found} />}
      {found.same_bytes !== null && <Digest found={found} />}
      {drawn ? <Tensors found={found} key={found.brief.row} /> : <Absent found={found} />}
      <Spread found={found} spread={spread} />
      {found.metrics.length > 0 && <Metrics found={found} />}
      {drawn && <Worst found={found} spread={spread} />}
      <More found={found} />
    </>
  );
}

/** Why there are no pictures, where somebody would look for them. */
function Absent({ found }: { found: RowDetail }): JSX.Element | null {
  if (!found.missing || found.basis === "digest") return null;
  return (
    <div class="sec">
      <h3>Tensors</h3>
      <div class="empty" data-testid="missing">
        <b>The values are not at hand</b>
        <span>{found.missing}</span>
        {found.basis === "statistics" && <span class="dim">Heatmaps, value histograms and worst elements need the values: capture with --record values.</span>}
        {found.basis === "values" && found.metrics.length > 0 && <span class="dim">Measurements stay; heatmaps, value histograms and worst elements need the values.</span>}
      </div>
    </div>
  );
}

function Loading(): JSX.Element {
  return (
    <div class="sec loading" aria-hidden="true">
      {[70, 45, 90, 60, 80].map((width) => (
        <i style={{ width: `${width}%` }} />
      ))}
    </div>
  );
}

export function Trouble({ what, problem: said }: { what: string; problem: Problem }): JSX.Element {
  return (
    <div class="sec">
      <div class="empty err" role="alert">
        <b>{what}</b>
        <ProblemText problem={said} />
        {gone.value !== null && (
          <button class="btn s" onClick={state.tryAgain}>
            Try now
          </button>
        )}
      </div>
    </div>
  );
}
