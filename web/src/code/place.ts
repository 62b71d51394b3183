// A line that was asked for by name, beside that of the selected op.
import { effect, signal } from "@preact/signals";
import type { Side } from "../api/source";
import * as state from "../state";

export interface Place {
  side: Side;
  file: string;
  line: number;
}

/** The line to show instead of the selected op's own; it goes with the selection. */
export const pointed = signal<Place | null>(null);

effect(() => {
  void state.selected.value;
  pointed.value = null;
});
