// The lines between panes: drag to resize, double-click to reset; sizes are remembered.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { localStore } from "./state";

interface Split {
  name: string;
  property: string;
  least: number;
  most: number;
  /** Size in pixels (or per cent of the middle) for a pointer at x, y. */
  size(x: number, y: number): number;
  unit: string;
  row: boolean;
}

const SPLITS: Split[] = [
  { name: "navigator", property: "--nav-w", least: 240, most: 480, size: (x) => x, unit: "px", row: false },
  { name: "inspector", property: "--insp-w", least: 360, most: 640, size: (x) => innerWidth - x, unit: "px", row: false },
  { name: "drift", property: "--drift-h", least: 88, most: 240, size: (_, y) => innerHeight - y, unit: "px", row: true },
  {
    name: "structure",
    property: "--structure-share",
    least: 25,
    most: 80,
    size: (_, y) => {
      const middle = document.querySelector(".midw")?.getBoundingClientRect();
      return middle ? ((y - middle.top) / middle.height) * 100 : 56;
    },
    unit: "%",
    row: true,
  },
];

function put(split: Split, value: number | null): void {
  const style = document.documentElement.style;
  if (value === null) style.removeProperty(split.property);
  else style.setProperty(split.property, `${Math.round(Math.min(split.most, Math.max(split.least, value)))}${split.unit}`);
}

export function Splitters(): JSX.Element {
  useEffect(() => {
    for (const split of SPLITS) {
      const storedSize = Number.parseFloat(localStore(split.name) ?? "");
      if (Number.isFinite(storedSize)) put(split, storedSize);
    }
  }, []);
  return (
    <>
      {SPLITS.filter((split) => split.name !== "structure").map((split) => (
        <Splitter split={split} />
      ))}
    </>
  );
}

/** The one inside the middle column. */
export function MiddleSplitter(): JSX.Element {
  return <Splitter split={SPLITS[3] as Split} />;
}

function Splitter({ split }: { split: Split }): JSX.Element {
  const move = (event: JSX.TargetedPointerEvent<HTMLDivElement>): void => {
    if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
    const size = split.size(event.clientX, event.clientY);
    put(split, size);
    localStore(split.name, String(size));
  };
  return (
    <div
      class={`splitter ${split.row ? "h" : "v"} ${split.name}`}
      aria-hidden="true"
      onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
      onPointerMove={move}
      onDblClick={() => {
        put(split, null);
        localStore(split.name, "");
      }}
    />
  );
}
