// A new comparison, and those of the past.
import type { JSX } from "preact";

export function Session(): JSX.Element {
  return <main class="session" />;
}
