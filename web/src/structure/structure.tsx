// Target and reference graphs side by side.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Problem } from "../api/source";
import { paneKeys } from "../keyboard";
import { ProblemText } from "../problem";
import * as state from "../state";
import { runtimeOf } from "../topbar";
import type { Model } from "./model";
import { Pane } from "./pane";
import "./structure.css";

export function Structure(): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const pane = useRef<Pane | null>(null);
  const [words, setWords] = useState({ text: "", aloud: false });
  const [loaded, setLoaded] = useState<Model | Problem | null>(null);
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    const newPane = new Pane(canvas.current as HTMLCanvasElement, (text, aloud = false) => setWords({ text: text, aloud }), setLoaded);
    pane.current = newPane;
    paneKeys.set("f", () => newPane.fitAll());
    const timer = setTimeout(() => setSlow(true), 300);
    return () => {
      clearTimeout(timer);
      paneKeys.delete("f");
      newPane.stop();
    };
  }, []);
  const whole = state.overview.value;
  const model = loaded && "root" in loaded ? loaded : null;
  return (
    <section class="pane structure" aria-label="Structure">
      <div class="head lanes">
        <h2>Structure</h2>
        <span class="lane a">
          <b>Target</b> <span class="hide-s">{whole && (whole.target.fusion || runtimeOf(whole.target))}</span>
        </span>
        <span class="lane b">
          <b>Reference</b> <span class="hide-s">{whole && (whole.reference.fusion || runtimeOf(whole.reference))}</span>
        </span>
        <span class="sp" />
        <button class="ico s" aria-label="Zoom out" title="Zoom out (ctrl + wheel)" onClick={() => pane.current?.zoom(0.8)}>
          −
        </button>
        <button class="ico s" aria-label="Zoom in" title="Zoom in (ctrl + wheel)" onClick={() => pane.current?.zoom(1.25)}>
          +
        </button>
        <button class="btn s" title="Fit the graphs (f)" onClick={() => pane.current?.fitAll()}>
          Fit
        </button>
      </div>
      <div class="stage">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-label="Graphs of target and reference: arrows step through the sync points, + and − zoom, page up and down move, enter opens and closes the module of the selected op"
          aria-describedby="structure-words"
        />
        <Missing model={model} />
        {!loaded && slow && <p class="wait">Reading the graphs…</p>}
        {loaded && !model && <Broken problem={loaded as Problem} />}
        {model && !model.root.children?.length && (
          <div class="empty over">
            <b>There are no ops to show</b>
            <span>The comparison stores no op of either run.</span>
          </div>
        )}
        <p id="structure-words" class={words.aloud ? "said" : "unseen"} aria-live="polite">
          {words.text}
        </p>
      </div>
    </section>
  );
}

/** Which run is not available, and what is shown in its place. */
function Missing({ model }: { model: Model | null }): JSX.Element | null {
  const reasons = model?.missing;
  if (!reasons || (!reasons[0] && !reasons[1])) return null;
  return (
    <div class="missing">
      {reasons[0] && reasons[1] && (
        <p>
          Neither run is available: {reasons[0]}; {reasons[1]}. Only what the comparison stores is shown, without edges in the reference.
        </p>
      )}
      {reasons[0] && !reasons[1] && <p title={reasons[0]}>The target run is not available: {reasons[0]}. Only the ops stored in the comparison are shown.</p>}
      {reasons[1] && !reasons[0] && <p title={reasons[1]}>The reference run is not available: {reasons[1]}. Only ops of sync points and unmatched ops are shown, without edges.</p>}
    </div>
  );
}

function Broken({ problem }: { problem: Problem }): JSX.Element {
  return (
    <div class="empty over err" role="alert">
      <b>The graphs cannot be shown</b>
      <ProblemText problem={problem} />
    </div>
  );
}
