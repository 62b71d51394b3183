// Choosing a file of the machine that the server runs on, among the folders it was given.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { problemOf, type Problem } from "../api/source";
import { ProblemText } from "../problem";
import * as api from "./api";

interface Choosing {
  what: string;
  take: (path: string) => void;
}

const choosing = signal<Choosing | null>(null);
const listing = signal<api.Listing | null>(null);
const problem = signal<Problem | null>(null);
const text = signal("");
let last = "";

/** Let somebody choose `what`. */
export async function choose(what: string, take: (path: string) => void): Promise<void> {
  choosing.value = { what, take };
  await enter(last);
}

async function enter(path: string): Promise<void> {
  text.value = "";
  problem.value = null;
  try {
    listing.value = await api.files(path);
    last = path;
  } catch (error) {
    problem.value = problemOf(error);
  }
}

function take(path: string): void {
  choosing.value?.take(path);
  choosing.value = null;
}

const KINDS: Record<api.Entry["kind"], string> = {
  folder: "folder",
  model: "model",
  recording: "run",
  comparison: "comparison",
  python: "Python",
  inputs: "arrays",
  file: "",
};

export function Picker(): JSX.Element | null {
  const now = choosing.value;
  const filter = useRef<HTMLInputElement>(null);
  useEffect(() => filter.current?.focus(), [now, listing.value]);
  if (!now) return null;
  const lowered = text.value.toLowerCase();
  const folder = listing.value;
  const entries = (folder?.entries ?? []).filter((entry) => entry.name.toLowerCase().includes(lowered));
  return (
    <div
      class="modal"
      onClick={(event) => event.target === event.currentTarget && (choosing.value = null)}
      onKeyDown={(event) => {
        if (event.key === "Escape") choosing.value = null;
        event.stopPropagation();
      }}
    >
      <div class="card picker" role="dialog" aria-modal="true" aria-label={`Choose ${now.what}`}>
        <h3>Choose {now.what}</h3>
        <div class="where">
          <button type="button" class="btn s" disabled={folder?.parent == null} onClick={() => void enter(folder?.parent ?? "")}>
            Up
          </button>
          <span class="start mono">
            <bdi>{folder?.path || "folders of this session"}</bdi>
          </span>
          <span class="sp" />
          <div class="search">
            <input ref={filter} type="search" aria-label="Filter files" placeholder="Filter" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
          </div>
        </div>
        {problem.value && <ProblemText problem={problem.value} />}
        <ul class="files" aria-label="Files">
          {entries.map((entry) => (
            <li key={entry.path}>
              <button type="button" onClick={() => (entry.kind === "folder" ? void enter(entry.path) : take(entry.path))}>
                <span class="cut">{entry.name}</span>
                <span class="dim">{KINDS[entry.kind]}</span>
                <span class="dim num">{entry.size === null ? "" : size(entry.size)}</span>
              </button>
            </li>
          ))}
          {entries.length === 0 && <li class="dim none">{folder?.entries.length ? "no matching file" : "empty folder"}</li>}
          {(folder?.left_out ?? 0) > 0 && <li class="dim none">and {folder?.left_out} more; type the path</li>}
        </ul>
        <footer>
          <button type="button" class="btn" disabled={!folder?.path} onClick={() => folder && take(folder.path)}>
            This folder
          </button>
          <span class="sp" />
          <button type="button" class="btn" onClick={() => (choosing.value = null)}>
            Cancel
          </button>
        </footer>
      </div>
    </div>
  );
}

export function size(bytes: number): string {
  let value = bytes;
  for (const unit of ["bytes", "kB", "MB", "GB"]) {
    if (value < 1000 || unit === "GB") return `${unit === "bytes" ? value : value.toPrecision(3)} ${unit}`;
    value /= 1000;
  }
  return "";
}
