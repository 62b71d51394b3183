// The metric over execution order.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Glyph } from "../marks";
import { count } from "../numbers";
import * as state from "../state";
import { Pane } from "./pane";
import "./drift.css";

export function Drift(): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [{ measured, introduced, bounds }, setDrawn] = useState({ measured: true, introduced: false, bounds: false });
  useEffect(() => {
    const pane: Pane = new Pane(canvas.current as HTMLCanvasElement, () => queueMicrotask(() => setDrawn({ measured: pane.measured, introduced: pane.drawsIntroduced, bounds: pane.drawsBounds })));
    return () => pane.stop();
  }, []);
  const drift = state.drift.value;
  const title = state.overview.value?.metrics.find((one) => one.id === state.metric.value)?.title ?? state.metric.value;
  const flags = drift?.flags.map((flag) => flag.text).join("; ") ?? "";
  return (
    <section class="pane drift" aria-label="Drift">
      <div class="head">
        <h2>Drift</h2>
        {measured && <Line colour="ink" word="total" />}
        {introduced && <Line colour="reference" word="introduced" />}
        {bounds && <Line colour="ink-3" word="at most (statistics)" dashed />}
        <span class="dim hide-s">drag to filter the navigator</span>
        <span class="sp" />
        <span class="legend">
          <Glyph level="close" />
          close
        </span>
        <span class="legend">
          <Glyph level="moderate" />
          moderate
        </span>
        <span class="legend">
          <Glyph level="large" />
          large
        </span>
        <span class="legend">
          <Glyph level="moderate" guilt="inherited" />
          <Glyph level="large" guilt="inherited" />
          inherited
        </span>
        <span class="legend hide-s">
          <Glyph level="large" guilt="amplified" />
          amplified
        </span>
        <span class="legend">
          <Glyph level="none" />
          no verdict
        </span>
      </div>
      <div class="strip">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-label={`${title} over ${count(drift?.points ?? 0)} sync points in execution order. ${flags || "Nothing is marked"}. Click selects, dragging filters the navigator, b filters by the module of the selected op`}
        />
        {drift && drift.points === 0 && <p class="none">There are no sync points to draw.</p>}
        {drift && drift.points > 0 && !measured && (
          <p class="none">
            <span>
              No sync point has a value of {title}: {state.drift.value?.values ? "it was not measured here" : "no op output was recorded with values on both sides"}. Marks at the bottom are verdicts.
            </span>
          </p>
        )}
      </div>
    </section>
  );
}

function Line({ colour, word, dashed = false }: { colour: string; word: string; dashed?: boolean }): JSX.Element {
  return (
    <span class="legend">
      <svg width="16" height="6" aria-hidden="true">
        <path d="M0 3h16" stroke={`var(--${colour})`} stroke-width="1.5" stroke-dasharray={dashed ? "2 2.5" : undefined} />
      </svg>
      {word}
    </span>
  );
}
