// A piece of a fused op that was asked for by its name.
import { effect, signal } from "@preact/signals";
import * as state from "../state";

/** Its name in the reference; it goes with the selection. */
export const member = signal("");

effect(() => {
  void state.selected.value;
  member.value = "";
});
