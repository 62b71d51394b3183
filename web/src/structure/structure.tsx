// Target and reference graphs side by side.
import type { JSX } from "preact";

export function Structure(): JSX.Element {
  return (
    <section class="pane structure" aria-label="Structure">
      <div class="head">
        <h2>Structure</h2>
      </div>
    </section>
  );
}
