// The metric over execution order.
import type { JSX } from "preact";

export function Drift(): JSX.Element {
  return (
    <section class="pane drift" aria-label="Drift">
      <div class="head">
        <h2>Drift</h2>
      </div>
    </section>
  );
}
