// Which plane of the tensors is shown; it lies in the address as `1,2@0,52,62w0,10,0,20`.
import { signal } from "@preact/signals";
import * as state from "../state";

export interface Slice {
  /** Axes shown as rows and columns; without them the server chooses. */
  axes: readonly [number, number] | null;
  /** Index along every axis; of the two that are shown it is where the cursor begins. */
  index: readonly number[] | null;
  /** First row, last row + 1, first column, last column + 1. */
  window: readonly number[] | null;
}

/** Row and column of the plane that the cursor is on, in all three maps. */
export const cursor = signal<{ row: number; column: number } | null>(null);

/** The sync point whose maps have been answered: what is less urgent is asked after them. */
export const answered = signal<number | null>(null);

const numbers = (text: string | undefined): number[] | null => {
  if (!text) return null;
  const parsed = text.split(",").map(Number);
  return parsed.every((one) => Number.isInteger(one) && one >= 0) ? parsed : null;
};

export function readSlice(text: string): Slice {
  const [, axes, indexText, window] = /^([\d,]*)@([\d,]*)(?:w([\d,]+))?$/.exec(text) ?? [];
  const two = numbers(axes);
  const four = numbers(window);
  return { axes: two?.length === 2 ? [two[0] as number, two[1] as number] : null, index: numbers(indexText), window: four?.length === 4 ? four : null };
}

export function writeSlice(slice: Slice): void {
  const window = slice.window ? `w${slice.window.join(",")}` : "";
  state.slice.value = `${slice.axes?.join(",") ?? ""}@${slice.index?.join(",") ?? ""}${window}`;
}

/** Bring an element into view, with the cursor on it. */
export function lookAt(index: readonly number[]): void {
  cursor.value = null;
  writeSlice({ axes: readSlice(state.slice.peek()).axes, index, window: null });
}
