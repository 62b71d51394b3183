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
  const [words, setWords] = useState({ said: "", aloud: false });
  const [found, setFound] = useState<Model | Problem | null>(null);
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    const made = new Pane(canvas.current as HTMLCanvasElement, (said, aloud = false) => setWords({ said, aloud }), setFound);
    pane.current = made;
    paneKeys.set("f", () => made.fitAll());
    const timer = setTimeout(() => setSlow(true), 300);
    return () => {
      clearTimeout(timer);
      paneKeys.delete("f");
      made.stop();
    };
  }, []);
  const whole = state.overview.value;
  const model = found && "root" in found ? found : null;
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
        {!found && slow && <p class="wait">Reading the graphs…</p>}
        {found && !model && <Broken problem={found as Problem} />}
        {model && !model.root.children?.length && (
          <div class="empty over">
            <b>There are no ops to show</b>
            <span>The comparison knows no op of either run.</span>
          </div>
        )}
        <p id="structure-words" class={words.aloud ? "said" : "unseen"} aria-live="polite">
          {words.said}
        </p>
      </div>
    </section>
  );
}

/** Which run is not at hand, and what is shown in its place. */
function Missing({ model }: { model: Model | null }): JSX.Element | null {
  const said = model?.missing;
  if (!said || (!said[0] && !said[1])) return null;
  return (
    <div class="missing">
      {said[0] && said[1] && (
        <p>
          Neither run is at hand: {said[0]}; {said[1]}. Shown is what the comparison knows, of the reference without edges.
        </p>
      )}
      {said[0] && !said[1] && <p title={said[0]}>The target run is not at hand: {said[0]}. Its ops are those that the comparison knows.</p>}
      {said[1] && !said[0] && <p title={said[1]}>The reference run is not at hand: {said[1]}. Only ops of sync points and unmatched ones are shown, without edges.</p>}
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
