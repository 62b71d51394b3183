// The selected sync point in full: asked for once, shown by several panes.
import { effect, signal } from "@preact/signals";
import { back } from "./api/live";
import { problemOf, type Problem, type RowDetail } from "./api/source";
import * as state from "./state";

export const detail = signal<RowDetail | null>(null);
export const problem = signal<Problem | null>(null);
/** Whether an answer is on its way for longer than one notices. */
export const late = signal(false);
let started = false;

/** Follow the selection from now on. */
export function startDetail(): void {
  if (started) return;
  started = true;
  effect(() => {
    const row = state.selected.value;
    const metric = state.metric.value;
    void back.value;
    const limits = state.overview.value?.limits;
    problem.value = null;
    late.value = false;
    if (row === null || limits === undefined) {
      detail.value = null;
      return;
    }
    let current = true;
    // What is on screen stays until the answer is there, unless that takes long.
    const timer = setTimeout(() => {
      if (detail.peek()?.brief.row !== row) detail.value = null;
      late.value = true;
    }, 300);
    state.source.row(row, metric).then(
      (rowDetail) => {
        if (!current) return;
        clearTimeout(timer);
        late.value = false;
        detail.value = rowDetail;
      },
      (error: unknown) => {
        if (!current) return;
        clearTimeout(timer);
        late.value = false;
        detail.value = null;
        problem.value = problemOf(error);
      },
    );
    return () => {
      current = false;
      clearTimeout(timer);
    };
  });
}
