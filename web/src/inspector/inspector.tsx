// Everything about the selected sync point, in the order of the questions people ask.
import type { JSX } from "preact";

export function Inspector(): JSX.Element {
  return (
    <aside class="pane insp" aria-label="Inspector">
      <div class="head">
        <h2>Inspector</h2>
      </div>
    </aside>
  );
}
