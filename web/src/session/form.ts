// What is filled in. The server keeps it, so that a reload loses nothing and every tab shows the same;
// this tab keeps what it has not sent yet.
import { batch, computed, effect, signal, type Signal } from "@preact/signals";
import { problemOf, type Problem } from "../api/source";
import * as api from "./api";

export type From = "model" | "recording" | "intermediates";
export type Role = "target" | "reference";
export type InputKind = "recorded" | "zeros" | "ones" | "random" | "file";

export interface SideForm {
  from: Signal<From>;
  path: Signal<string>;
  runtime: Signal<string>;
  options: Signal<Record<string, string>>;
  /** What is at the path; null while that is being found out. */
  description: Signal<api.Seen | null>;
}

const side = (): SideForm => ({
  from: signal<From>("model"),
  path: signal(""),
  runtime: signal(""),
  options: signal<Record<string, string>>({}),
  description: signal<api.Seen | null>(null),
});

export const sides: Record<Role, SideForm> = { target: side(), reference: side() };
export const referenceModel = signal("");
/** Empty until somebody chooses: then what fits the sides is taken. */
export const chosenInputs = signal<InputKind | "">("");
export const seed = signal("0");
export const inputFile = signal("");
export const shapes = signal("");
export const metric = signal("psnr");
export const preset = signal("auto");
export const introduced = signal<api.Spec["introduced"]>("local");
export const record = signal<api.Spec["target"]["record"]>("values");

export const recordedBy = computed<Role | null>(() => {
  for (const role of ["reference", "target"] as const) if (sides[role].description.value?.recorded) return role;
  return null;
});
export const inputKind = computed<InputKind>(() => chosenInputs.value || (recordedBy.value ? "recorded" : "random"));
/** Whether a model is run at all. */
export const runs = computed(() => Object.values(sides).some((one) => one.description.value?.kind !== "recording"));

export function inputsText(): string {
  if (!runs.value) return "";
  switch (inputKind.value) {
    case "recorded":
      return "";
    case "random":
      return `random:${seed.value || 0}`;
    case "file":
      return inputFile.value.trim();
    default:
      return inputKind.value;
  }
}

function sideSpec(role: Role): api.Spec["target"] {
  const one = sides[role];
  const runtimes = one.description.value?.runtimes ?? [];
  const runtime = runtimes.find((r) => r.name === one.runtime.value) ?? runtimes[0];
  const options: Record<string, string> = {};
  for (const option of runtime?.options ?? []) {
    const value = one.options.value[option.name];
    if (value !== undefined && value !== option.default) options[option.name] = value;
  }
  return { path: one.path.value.trim(), runtime: one.runtime.value && runtime ? runtime.name : "", options, record: record.value };
}

export const spec = computed<api.Spec>(() => ({
  target: sideSpec("target"),
  reference: sideSpec("reference"),
  inputs: inputsText(),
  shapes: ["random", "zeros", "ones"].includes(inputKind.value) ? shapes.value.split(/\s+/).filter(Boolean) : [],
  metric: metric.value,
  preset: preset.value,
  introduced: introduced.value,
  reference_model: sides.reference.description.value?.kind === "recording" ? referenceModel.value.trim() : "",
  request_id: "",
}));

/** What is not filled in yet, by the id of its field. */
export const missing = computed<ReadonlyMap<string, string>>(() => {
  const problems = new Map<string, string>();
  for (const role of ["target", "reference"] as const) {
    if (!sides[role].path.value.trim()) problems.set(`${role}-path`, sides[role].from.value === "model" ? "a model is missing: type its path or choose one" : "a run or a dump is missing: type its path or choose one");
  }
  if (runs.value && inputKind.value === "file" && !inputFile.value.trim()) {
    problems.set("input-file", "the file is missing: type its path, choose one, or take zeros, ones or random numbers");
  }
  return problems;
});
/** Whether Compare was pressed on a form with gaps: from then on they are shown. */
export const tried = signal(false);
export const gap = (id: string): string => (tried.value && missing.value.get(id)) || "";
export const ready = computed(() => missing.value.size === 0);
export const command = signal<api.Command | null>(null);
export const refusal = signal<Problem | null>(null);

export function swap(): void {
  batch(() => {
    const { target, reference } = sides;
    for (const field of ["from", "path", "runtime", "options", "description"] as const) {
      const targetValue = target[field].value;
      target[field].value = reference[field].value as never;
      reference[field].value = targetValue as never;
    }
    if (target.from.value === "intermediates") target.from.value = "recording";
  });
}

/** Do something once a value has rested. */
function rested<T>(read: () => T, act: (value: T) => void, pause: number): void {
  let timer = 0;
  effect(() => {
    const value = read();
    clearTimeout(timer);
    timer = setTimeout(() => act(value), pause);
  });
}

const STORE = "syncpoint.session";
type Fields = Record<string, string>;
interface Kept {
  /** Of the server, and of its form when this was typed. */
  key: string;
  version: number;
  fields: Fields;
}

function readStoredForm(): Kept | null {
  try {
    return JSON.parse(sessionStorage.getItem(STORE) ?? "null") as Kept | null;
  } catch {
    return null;
  }
}

function keep(): void {
  try {
    sessionStorage.setItem(STORE, JSON.stringify({ key, version, fields: filled() } satisfies Kept));
  } catch {
    // Without a place in the browser the server still has it.
  }
}

const plain: Record<string, Signal<string>> = {
  referenceModel,
  chosenInputs: chosenInputs as Signal<string>,
  seed,
  inputFile,
  shapes,
  metric,
  preset,
  introduced: introduced as Signal<string>,
  record: record as Signal<string>,
};
for (const role of ["target", "reference"] as const) {
  for (const field of ["from", "path", "runtime"] as const) plain[`${role}.${field}`] = sides[role][field] as Signal<string>;
}

const defaults: Fields = Object.fromEntries(Object.entries(plain).map(([name, field]) => [name, field.value]));
let key = "";
let version = 0;
/** As the server has it. */
let sent = "";

function filled(): Fields {
  const all: Fields = {};
  for (const [name, field] of Object.entries(plain)) all[name] = field.value;
  for (const role of ["target", "reference"] as const) all[`${role}.options`] = JSON.stringify(sides[role].options.value);
  return all;
}

function put(fields: Fields): void {
  batch(() => {
    for (const [name, field] of Object.entries(plain)) field.value = fields[name] ?? defaults[name] ?? "";
    for (const role of ["target", "reference"] as const) {
      try {
        sides[role].options.value = JSON.parse(fields[`${role}.options`] ?? "{}") as Record<string, string>;
      } catch {
        sides[role].options.value = {};
      }
    }
  });
}

async function send(): Promise<void> {
  const fields = JSON.stringify(filled());
  if (fields === sent) return;
  const before = sent;
  sent = fields;
  try {
    version = Math.max(version, (await api.fill(JSON.parse(fields) as Fields)).version);
    keep();
  } catch {
    // It is sent again with the next change.
    if (sent === fields) sent = before;
  }
}

/** Take over what another tab has filled in, unless somebody is typing in this one. */
export async function follow(newest: number): Promise<void> {
  if (newest <= version || JSON.stringify(filled()) !== sent) return;
  const newestForm = await api.form().catch(() => null);
  if (!newestForm || newestForm.version <= version || JSON.stringify(filled()) !== sent) return;
  version = newestForm.version;
  put(newestForm.fields);
  sent = JSON.stringify(filled());
}

/** Fill in what was there before, or else what the command line named; then follow what is typed. */
export function begin(info: api.SessionInfo): void {
  const before = readStoredForm();
  const isOwnNewer = before && (before.key === info.key ? before.version >= info.form.version : info.form.version === 0);
  ({ key } = info);
  ({ version } = info.form);
  put(info.form.fields);
  sent = JSON.stringify(filled());
  if (isOwnNewer) put(before.fields);
  effect(() => {
    filled();
    keep();
  });
  rested(filled, () => void send(), 250);
  addEventListener("pagehide", () => void send());
  for (const one of Object.values(sides)) {
    rested(
      () => one.path.value.trim(),
      (path) => {
        if (one.description.value?.path === path) return;
        if (!path) {
          one.description.value = null;
          return;
        }
        api.look(path).then(
          (description) => {
            if (one.path.value.trim() !== path) return;
            batch(() => {
              one.description.value = description;
              if (description.kind === "model") one.from.value = "model";
              if (description.kind === "recording" && one.from.value === "model") one.from.value = "recording";
            });
          },
          () => undefined,
        );
      },
      200,
    );
  }
  rested(
    () => (ready.value ? spec.value : null),
    (requestedSpec) => {
      if (!requestedSpec) {
        command.value = refusal.value = null;
        return;
      }
      const settle = (commandLine: api.Command | null, problem: Problem | null): void => {
        if (spec.value !== requestedSpec) return;
        batch(() => {
          command.value = commandLine;
          refusal.value = problem;
        });
      };
      api.command(requestedSpec).then(
        (commandLine) => settle(commandLine, null),
        (error: unknown) => settle(null, problemOf(error)),
      );
    },
    250,
  );
}
