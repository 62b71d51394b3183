// What the pointer and the keys do to the graphs.
import * as state from "../state";
import { STRIP } from "./layout";
import type { Pane } from "./pane";

/** Pixels that a press may move and still be a click. */
const STILL = 4;

/** Listen until told to stop. */
export function listen(canvas: HTMLCanvasElement, pane: Pane): () => void {
  const stops: (() => void)[] = [];
  let from: { x: number; y: number; moved: boolean; strip: boolean } | null = null;
  const on = <K extends keyof HTMLElementEventMap>(kind: K, act: (event: HTMLElementEventMap[K]) => void, options?: AddEventListenerOptions): void => {
    canvas.addEventListener(kind, act, options);
    stops.push(() => canvas.removeEventListener(kind, act, options));
  };
  on("pointerdown", (event) => {
    if (event.button) return;
    const strip = event.clientX - canvas.getBoundingClientRect().left > pane.width - STRIP;
    from = { x: event.clientX, y: event.clientY, moved: false, strip };
    canvas.setPointerCapture(event.pointerId);
    if (strip) pane.jump(event);
  });
  on("pointermove", (event) => {
    if (!from) {
      const { hit } = pane.at(event);
      const row = hit && !hit.box && hit.item.worst >= 0 ? hit.item.worst : null;
      state.hovered.value = row;
      canvas.style.cursor = hit ? "pointer" : "grab";
      return;
    }
    if (from.strip) return pane.jump(event);
    if (!from.moved && Math.hypot(event.clientX - from.x, event.clientY - from.y) < STILL) return;
    pane.pan(from.x - event.clientX, from.y - event.clientY);
    from = { x: event.clientX, y: event.clientY, moved: true, strip: false };
    canvas.style.cursor = "grabbing";
  });
  on("pointerup", (event) => {
    if (from && !from.moved && !from.strip) pane.click(pane.at(event).hit);
    from = null;
    canvas.style.cursor = "grab";
  });
  on("pointercancel", () => (from = null));
  on("pointerleave", () => {
    if (!from) state.hovered.value = null;
  });
  on(
    "wheel",
    (event) => {
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) pane.zoom(Math.exp(-event.deltaY * 0.0022), event.clientX - box.left, event.clientY - box.top);
      else pane.pan(event.shiftKey ? event.deltaY : event.deltaX, event.shiftKey ? 0 : event.deltaY);
    },
    { passive: false },
  );
  on("keydown", (event) => {
    const page = pane.height * 0.8;
    const acts: Record<string, () => void> = {
      "+": () => pane.zoom(1.25),
      "=": () => pane.zoom(1.25),
      "-": () => pane.zoom(0.8),
      PageDown: () => pane.pan(0, page),
      PageUp: () => pane.pan(0, -page),
      Home: () => pane.pan(0, -1e9),
      End: () => pane.pan(0, 1e9),
      Enter: () => pane.closeAround(),
    };
    const act = acts[event.key];
    if (!act || (event.key === "Enter" && state.selected.peek() === null)) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  return () => {
    for (const stop of stops) stop();
  };
}
