// The source line that the selected op came from.
import type { JSX } from "preact";

export function Code(): JSX.Element {
  return <div class="code" tabIndex={0} aria-label="Source" />;
}
