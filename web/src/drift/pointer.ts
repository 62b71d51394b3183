// What the pointer does on the drift strip: it selects, and a drag is a brush.
import * as state from "../state";
import { ordered, type Pane } from "./pane";

/** Listen until told to stop. */
export function listen(canvas: HTMLCanvasElement, pane: Pane): () => void {
  const stops: (() => void)[] = [];
  const on = <K extends keyof HTMLElementEventMap>(kind: K, act: (event: HTMLElementEventMap[K]) => void): void => {
    canvas.addEventListener(kind, act);
    stops.push(() => canvas.removeEventListener(kind, act));
  };
  let down: { x: number; moved: boolean } | null = null;
  const place = (event: PointerEvent): [number, number] => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  on("pointerdown", (event) => {
    if (event.button || !pane.points) return;
    canvas.setPointerCapture(event.pointerId);
    down = { x: place(event)[0], moved: false };
  });
  on("pointermove", (event) => {
    const [x] = place(event);
    if (!down) {
      state.hovered.value = pane.nearest(x);
      return;
    }
    if (!down.moved && Math.abs(x - down.x) < 4) return;
    down.moved = true;
    const hold = (pixel: number): number => Math.min(Math.max(pane.orderAt(pixel), 0), pane.points - 1);
    pane.drag = { from: hold(down.x), to: hold(x) };
    pane.schedule();
  });
  on("pointerup", (event) => {
    const [x, y] = place(event);
    if (pane.drag) state.brush.value = ordered(pane.drag.from, pane.drag.to);
    else if (down) pane.click(x, y);
    down = null;
    pane.drag = null;
    pane.schedule();
  });
  on("pointercancel", () => {
    down = null;
    pane.drag = null;
    pane.schedule();
  });
  on("pointerleave", () => {
    if (!down) state.hovered.value = null;
  });
  on("keydown", (event) => {
    if (event.key !== "b" || event.ctrlKey || event.metaKey) return;
    const row = state.selected.peek();
    const order = row === null ? undefined : state.states.peek()?.orders[row];
    if (order !== undefined) pane.brushGroup(order);
  });
  return () => {
    for (const stop of stops) stop();
  };
}
