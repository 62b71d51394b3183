// Where in the model: the file, then module by module. A click shows only what is inside.
import type { JSX } from "preact";
import type { Side } from "../api/source";
import { short } from "../topbar";
import * as state from "../state";

interface Props {
  module: string;
  file: string;
  line: number;
  side: Side | null;
  hasBothFiles: boolean;
  onSide: (side: Side) => void;
}

/** `blocks.1.attn.proj` as blocks.1, attn, proj, each with the path that leads to it. */
export function steps(module: string): { name: string; path: string }[] {
  const crumbs: { name: string; path: string }[] = [];
  let path = "";
  for (const name of module.split(".").filter(Boolean)) {
    path = path ? `${path}.${name}` : name;
    const last = crumbs[crumbs.length - 1];
    if (/^\d+$/.test(name) && last && !/\.\d+$/.test(last.name)) crumbs[crumbs.length - 1] = { name: `${last.name}.${name}`, path };
    else crumbs.push({ name, path });
  }
  return crumbs;
}

export function Crumb({ module, file, line, side, hasBothFiles, onSide }: Props): JSX.Element {
  return (
    <>
      {file && (
        <span class="file" title={`${file}:${line}`}>
          {short(file)}
          {line > 0 && `:${line}`}
        </span>
      )}
      <nav class="steps" aria-label="Module path">
        {steps(module).map(({ name, path }) => (
          <>
            <i aria-hidden="true">›</i>
            <button title={`Show only what is in ${path}`} aria-pressed={state.module.value === path} onClick={() => (state.module.value = state.module.value === path ? "" : path)}>
              {name}
            </button>
          </>
        ))}
      </nav>
      <span class="sp" />
      {hasBothFiles && side && (
        <span class="seg" role="group" aria-label="Source of">
          {(["target", "reference"] as const).map((one) => (
            <button aria-pressed={side === one} onClick={() => onSide(one)}>
              {one === "target" ? "Target" : "Reference"}
            </button>
          ))}
        </span>
      )}
    </>
  );
}
