// Everything about the selected sync point, in the order of the questions people ask.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { serverLostSince } from "../api/live";
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
  const rowDetail = detail.value;
  const total = state.overview.value?.rows ?? 0;
  return (
    <aside class="pane insp" aria-label="Inspector">
      <div class="head">
        <h2>Inspector</h2>
        <span class="sp" />
        {rowDetail && (
          <span class="dim" data-testid="place" title="Place in execution order">
            {count(rowDetail.brief.order + 1)} of {count(total)}
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
        {!rowDetail && late.value && <Loading />}
        {rowDetail && <Sections rowDetail={rowDetail} />}
      </div>
    </aside>
  );
}

function Sections({ rowDetail }: { rowDetail: RowDetail }): JSX.Element {
  const hasValues = !rowDetail.missing && rowDetail.basis === "values";
  const spread = useDistribution(rowDetail, hasValues);
  return (
    <>
      <div class="sec">
        <Pair rowDetail={rowDetail} />
        <Fault rowDetail={rowDetail} />
        <Region rowDetail={rowDetail} />
      </div>
      {rowDetail.bars.total !== null && <Bars rowDetail={rowDetail} />}
      {rowDetail.basis === "statistics" && <Statistics rowDetail={rowDetail} />}
      {rowDetail.same_bytes !== null && <Digest rowDetail={rowDetail} />}
      {hasValues ? <Tensors rowDetail={rowDetail} key={rowDetail.brief.row} /> : <Absent rowDetail={rowDetail} />}
      <Spread rowDetail={rowDetail} spread={spread} />
      {rowDetail.metrics.length > 0 && <Metrics rowDetail={rowDetail} />}
      {hasValues && <Worst rowDetail={rowDetail} spread={spread} />}
      <More rowDetail={rowDetail} />
    </>
  );
}

/** Why there are no pictures, where somebody would look for them. */
function Absent({ rowDetail }: { rowDetail: RowDetail }): JSX.Element | null {
  if (!rowDetail.missing || rowDetail.basis === "digest") return null;
  return (
    <div class="sec">
      <h3>Tensors</h3>
      <div class="empty" data-testid="missing">
        <b>The values are not available</b>
        <span>{rowDetail.missing}</span>
        {rowDetail.basis === "statistics" && <span class="dim">Heatmaps, value histograms and worst elements need the values: capture with --record values.</span>}
        {rowDetail.basis === "values" && rowDetail.metrics.length > 0 && <span class="dim">Measurements stay; heatmaps, value histograms and worst elements need the values.</span>}
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

export function Trouble({ what, problem }: { what: string; problem: Problem }): JSX.Element {
  return (
    <div class="sec">
      <div class="empty err" role="alert">
        <b>{what}</b>
        <ProblemText problem={problem} />
        {serverLostSince.value !== null && (
          <button class="btn s" onClick={state.tryAgain}>
            Try now
          </button>
        )}
      </div>
    </div>
  );
}
