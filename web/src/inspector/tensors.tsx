// Reference, target and difference as heat maps of the same slice, with one cursor.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { HeatMap, HeatMapQuery, RowDetail } from "../api/source";
import { useLatest } from "../latest_answer";
import { doubles, floats, integers } from "../decode";
import { paneKeys } from "../keyboard";
import { plain, signed } from "../numbers";
import * as state from "../state";
import { Trouble } from "./inspector";
import { DIFFERENCE, paint, VALUES, type Ramp } from "./paint";
import { answered, cursor, readSlice, writeSlice, type Slice } from "./slice";

const COLUMNS = 128;
const ROWS = 96;

interface Decoded {
  map: HeatMap;
  reference: ArrayLike<number>;
  target: ArrayLike<number>;
  difference: Float32Array;
  places: Uint32Array;
  bad: number;
}

function decode(map: HeatMap): Decoded {
  const numbers = map.wide ? doubles : floats;
  const reference = numbers(map.reference);
  const target = numbers(map.target);
  let bad = 0;
  for (let i = 0; i < reference.length; i++) if (!Number.isFinite(reference[i]) || !Number.isFinite(target[i])) bad++;
  return { map, reference, target, difference: floats(map.difference), places: integers(map.places), bad };
}

export function Tensors({ rowDetail }: { rowDetail: RowDetail }): JSX.Element {
  const row = rowDetail.brief.row;
  const slice = readSlice(state.slice.value);
  const query: HeatMapQuery = { rows: ROWS, columns: COLUMNS };
  if (slice.axes) [query.rowAxis, query.columnAxis] = slice.axes;
  if (slice.index) query.index = slice.index;
  if (slice.window) query.window = slice.window;
  const key = `${row} ${state.slice.value}`;
  const answer = useLatest(key, () => state.source.heatmap(row, query));
  const shown = useMemo(() => (answer.value ? decode(answer.value) : null), [answer.value]);
  useEffect(() => {
    cursor.value = null;
  }, [row]);
  useEffect(() => {
    if (answer.key) answered.value = row;
  }, [answer.key, row]);
  useKeys(shown?.map ?? null);
  return (
    <div class="sec" data-testid="tensors">
      <h3>
        Tensors <span class="sp" />
        {shown && <Axes map={shown.map} />}
      </h3>
      {answer.problem && <Trouble what="The values cannot be shown" problem={answer.problem} />}
      {answer.problem && state.slice.value && (
        <button class="btn s" onClick={() => (state.slice.value = "")}>
          Back to the first slice
        </button>
      )}
      {shown && (shown.map.rows ? <Maps shown={shown} complex={/^c\d/.test(rowDetail.target.dtype)} /> : <p class="aside">The tensors are empty.</p>)}
      {!shown && !answer.problem && <div class="blank-maps" style={{ marginBottom: `${19 * Math.max(rowDetail.reference.shape.filter((n) => n > 1).length - 2, 0)}px` }} aria-hidden="true" />}
      {shown && <Sliders map={shown.map} />}
    </div>
  );
}

/** Where the cells of a map lie in the plane. */
function geometry(map: HeatMap): { top: number; bottom: number; left: number; right: number; high: number; wide: number; planeColumns: number } {
  const [top, bottom, left, right] = map.window as [number, number, number, number];
  const [high, wide] = map.patch as [number, number];
  return { top, bottom, left, right, high, wide, planeColumns: map.column_axis >= 0 ? (map.shape[map.column_axis] as number) : 1 };
}

function Maps({ shown, complex }: { shown: Decoded; complex: boolean }): JSX.Element {
  const { map } = shown;
  const { top, bottom, left, right, high, wide, planeColumns } = geometry(map);
  const start = { row: map.row_axis >= 0 ? (map.at[map.row_axis] as number) : 0, column: map.column_axis >= 0 ? (map.at[map.column_axis] as number) : 0 };
  const place = cursor.value ?? start;
  const inside = place.row >= top && place.row < bottom && place.column >= left && place.column < right;
  const cell = inside ? { x: Math.floor((place.column - left) / wide), y: Math.floor((place.row - top) / high) } : null;
  const cellIndex = cell ? cell.y * map.columns + cell.x : -1;
  const [drag, setDrag] = useState<{ from: [number, number]; to: [number, number] } | null>(null);
  const size = { height: (bottom - top) / high, width: (right - left) / wide };
  const common = { shown, cell, size, drag, setDrag };
  const element = cellIndex >= 0 ? elementAt(map, shown.places[cellIndex] as number, planeColumns) : null;
  const value = (values: ArrayLike<number>): string => (cellIndex >= 0 ? signed(values[cellIndex] as number) : "");
  const pooled = high * wide > 1;
  return (
    <>
      <div class="maps">
        <One name="Reference" values={shown.reference} ramp={VALUES} scale={map.scale} text={value(shown.reference)} {...common} />
        <One name="Target" values={shown.target} ramp={VALUES} scale={map.scale} text={value(shown.target)} {...common} />
        <One name="Difference" values={shown.difference} ramp={DIFFERENCE} scale={map.difference_scale} text={value(shown.difference)} {...common} />
      </div>
      <div class="maps scales" aria-hidden="true">
        <Scale ramp="heat" scale={map.scale} wide />
        <Scale ramp="diff" scale={map.difference_scale} wide={false} />
      </div>
      <p class="aside read" data-testid="readout">
        {element && (
          <>
            <span class="dim">cursor</span> <b>{map.shape.length ? `[${element.join(", ")}]` : "the one element"}</b>
          </>
        )}
        {pooled && (
          <span class="dim" title="Each cell shows the element of its patch where |difference| is greatest">
            · {high} × {wide} a cell, its worst shown
          </span>
        )}
        {complex && <span class="dim">· modulus</span>}
        {shown.bad > 0 && (
          <span class="bad">
            <i /> NaN or infinite: {shown.bad}
          </span>
        )}
        <span class="sp" />
        {isZoomed(map) && (
          <button class="link" onClick={() => zoom(map, null)}>
            whole plane
          </button>
        )}
      </p>
    </>
  );
}

function elementAt(map: HeatMap, place: number, planeColumns: number): number[] {
  const index = [...map.at];
  if (map.row_axis >= 0) index[map.row_axis] = Math.floor(place / planeColumns);
  if (map.column_axis >= 0) index[map.column_axis] = place % planeColumns;
  return index;
}

interface OneProps {
  name: string;
  values: ArrayLike<number>;
  ramp: Ramp;
  scale: number;
  text: string;
  shown: Decoded;
  cell: { x: number; y: number } | null;
  size: { height: number; width: number };
  drag: { from: [number, number]; to: [number, number] } | null;
  setDrag: (drag: { from: [number, number]; to: [number, number] } | null) => void;
}

function One({ name, values, ramp, scale, text, shown, cell, size, drag, setDrag }: OneProps): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { map } = shown;
  const { top, bottom, left, right } = geometry(map);
  const theme = state.theme.value;
  const draw = (): void => {
    if (canvas.current) paint(canvas.current, { values, rows: map.rows, columns: map.columns, scale, ramp, ...size }, cell);
  };
  const drawing = useRef(draw);
  drawing.current = draw;
  useEffect(draw, [values, cell?.x, cell?.y, theme, scale]);
  useEffect(() => {
    if (!canvas.current) return;
    const watch = new ResizeObserver(() => drawing.current());
    watch.observe(canvas.current);
    return () => watch.disconnect();
  }, []);
  const where = (event: { clientX: number; clientY: number }): [number, number] => {
    const box = (canvas.current as HTMLCanvasElement).getBoundingClientRect();
    const along = (from: number, length: number, low: number, high: number): number => Math.min(high - 1, Math.max(low, low + Math.floor(((from / length) * (high - low)))));
    return [along(event.clientY - box.top, box.height, top, bottom), along(event.clientX - box.left, box.width, left, right)];
  };
  const move = (event: PointerEvent): void => {
    const [row, column] = where(event);
    cursor.value = { row, column };
    if (drag && event.buttons & 1) setDrag({ from: drag.from, to: [row, column] });
  };
  const release = (): void => {
    if (!drag) return;
    const [rows, columns] = [0, 1].map((k) => [drag.from[k] as number, drag.to[k] as number].sort((a, b) => a - b)) as [number[], number[]];
    setDrag(null);
    const window = [rows[0] as number, (rows[1] as number) + 1, columns[0] as number, (columns[1] as number) + 1];
    const grown = map.row_axis < 0 ? [0, 1, window[2] as number, window[3] as number] : window;
    const area = ((grown[1] as number) - (grown[0] as number)) * ((grown[3] as number) - (grown[2] as number));
    if (area > 1 && (drag.from[0] !== drag.to[0] || drag.from[1] !== drag.to[1])) zoom(map, grown);
  };
  const wheel = (event: WheelEvent): void => {
    // Plain wheels scroll the pane.
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomAt(map, where(event), event.deltaY < 0 ? 0.5 : 2);
  };
  useEffect(() => {
    const element = canvas.current;
    element?.addEventListener("wheel", wheel, { passive: false });
    return () => element?.removeEventListener("wheel", wheel);
  });
  const box = drag && { y: [drag.from[0], drag.to[0]].sort((a, b) => a - b) as [number, number], x: [drag.from[1], drag.to[1]].sort((a, b) => a - b) as [number, number] };
  const share = (value: number, low: number, high: number): string => `${((value - low) / (high - low)) * 100}%`;
  return (
    <figure>
      <figcaption>
        {name}
        <span class="sp" />
        <b data-testid={`value-${name.toLowerCase()}`}>{text}</b>
      </figcaption>
      <div class="map">
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${name}, ${map.rows} by ${map.columns} cells, greatest ${plain(scale)}`}
          title="Drag to zoom in, Ctrl and wheel too; double-click for the whole plane"
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            event.currentTarget.setPointerCapture(event.pointerId);
            setDrag({ from: where(event), to: where(event) });
          }}
          onPointerMove={move}
          onPointerUp={release}
          onPointerCancel={() => setDrag(null)}
          onDblClick={() => zoom(map, null)}
        />
        {box && (box.x[0] !== box.x[1] || box.y[0] !== box.y[1]) && (
          <i class="rubber" style={{ left: share(box.x[0], left, right), width: share(box.x[1] + 1 - box.x[0] + left, left, right), top: share(box.y[0], top, bottom), height: share(box.y[1] + 1 - box.y[0] + top, top, bottom) }} />
        )}
      </div>
    </figure>
  );
}

function Scale({ ramp, scale, wide }: { ramp: "heat" | "diff"; scale: number; wide: boolean }): JSX.Element {
  return (
    <div class={wide ? "w2" : ""}>
      <div class="ramp" style={{ background: `linear-gradient(90deg,var(--${ramp}-neg),var(--${ramp}-mid),var(--${ramp}-pos))` }} />
      <div class={scale ? "rl" : "rl flat"}>
        {scale > 0 && <span>{plain(-scale, 2)}</span>}
        <span>0</span>
        {scale > 0 && <span>{signed(scale, 2)}</span>}
      </div>
    </div>
  );
}

// ---- choosing the plane ----------------------------------------------------------------------

function sliceOf(map: HeatMap, change: Partial<Slice>): Slice {
  return { axes: map.row_axis >= 0 ? [map.row_axis, map.column_axis] : null, index: map.at, window: isZoomed(map) ? map.window : null, ...change };
}

function lengths(map: HeatMap): [number, number] {
  return [map.row_axis >= 0 ? (map.shape[map.row_axis] as number) : 1, map.column_axis >= 0 ? (map.shape[map.column_axis] as number) : 1];
}

function isZoomed(map: HeatMap): boolean {
  const [rows, columns] = lengths(map);
  const [top, bottom, left, right] = map.window as [number, number, number, number];
  return top > 0 || left > 0 || bottom < rows || right < columns;
}

function zoom(map: HeatMap, window: readonly number[] | null): void {
  if (!state.source.live) return;
  writeSlice(sliceOf(map, { window }));
}

/** Make the window smaller or larger around a place. */
function zoomAt(map: HeatMap, [row, column]: [number, number], factor: number): void {
  const [rows, columns] = lengths(map);
  const [top, bottom, left, right] = map.window as [number, number, number, number];
  const stretch = (low: number, high: number, center: number, most: number): [number, number] => {
    const length = Math.max(Math.min(most, 8), Math.min(most, Math.round((high - low) * factor)));
    const from = Math.max(0, Math.min(most - length, Math.round(center - ((center - low) / (high - low)) * length)));
    return [from, from + length];
  };
  const window = [...stretch(top, bottom, row, rows), ...stretch(left, right, column, columns)];
  const whole = window[0] === 0 && window[1] === rows && window[2] === 0 && window[3] === columns;
  zoom(map, whole ? null : window);
}

function Axes({ map }: { map: HeatMap }): JSX.Element | null {
  if (map.shape.length < 2 || !state.source.live) return null;
  const choose = (which: 0 | 1, axis: number): void => {
    const axes: [number, number] = [map.row_axis, map.column_axis];
    // Choosing the other one's axis swaps the two.
    if (axes[1 - which] === axis) axes[(1 - which) as 0 | 1] = axes[which];
    axes[which] = axis;
    cursor.value = null;
    writeSlice(sliceOf(map, { axes, window: null }));
  };
  const picker = (which: 0 | 1, word: string): JSX.Element => (
    <label>
      {word}{" "}
      <select class="axis" aria-label={`axis shown as ${word}`} value={which ? map.column_axis : map.row_axis} onChange={(event) => choose(which, Number(event.currentTarget.value))}>
        {map.names.map((name, axis) => (
          <option value={axis}>{name}</option>
        ))}
      </select>
    </label>
  );
  return (
    <span class="axes">
      {picker(0, "rows")} <span class="dim">·</span> {picker(1, "columns")}
    </span>
  );
}

function further(map: HeatMap): number[] {
  return map.shape.flatMap((length, axis) => (length > 1 && axis !== map.row_axis && axis !== map.column_axis ? [axis] : []));
}

function moveTo(map: HeatMap, axis: number, to: number): void {
  const now = readSlice(state.slice.peek());
  const index = [...(now.index?.length === map.shape.length ? now.index : map.at)];
  index[axis] = Math.max(0, Math.min((map.shape[axis] as number) - 1, to));
  writeSlice(sliceOf(map, { index }));
}

function Sliders({ map }: { map: HeatMap }): JSX.Element | null {
  // A report holds one slice.
  if (!state.source.live)
    return further(map).length ? (
      <p class="aside" data-testid="one-slice">
        The slice at {further(map).map((axis) => `${map.names[axis]} = ${map.at[axis]}`).join(", ")}; a report holds one, syncpoint view shows the others.
      </p>
    ) : null;
  const index = readSlice(state.slice.value).index ?? map.at;
  return (
    <>
      {further(map).map((axis, i) => (
        <label class="slice">
          <span>{map.names[axis]}</span>
          <input type="range" min="0" max={(map.shape[axis] as number) - 1} value={index[axis] ?? 0} aria-label={`index along ${map.names[axis]}`} onInput={(event) => moveTo(map, axis, Number(event.currentTarget.value))} />
          <span class="of">
            index {index[axis] ?? 0} of 0–{(map.shape[axis] as number) - 1} {i === 0 && <kbd>[ ]</kbd>}
          </span>
        </label>
      ))}
    </>
  );
}

/** `[` and `]` step along the first axis that has a slider, from the moment that the slider is there. */
function useKeys(map: HeatMap | null): void {
  useLayoutEffect(() => {
    const axis = map ? further(map)[0] : undefined;
    if (!map || axis === undefined || !state.source.live) return;
    const step = (by: number) => () => {
      const index = readSlice(state.slice.peek()).index ?? map.at;
      moveTo(map, axis, (index[axis] ?? 0) + by);
    };
    paneKeys.set("[", step(-1));
    paneKeys.set("]", step(1));
    return () => {
      paneKeys.delete("[");
      paneKeys.delete("]");
    };
  }, [map]);
}
