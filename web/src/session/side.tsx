// One configuration: what it is, how it is run, what it is given.
import type { JSX } from "preact";
import { useId, useState } from "preact/hooks";
import { problemOf } from "../api/source";
import { Glyph } from "../marks";
import * as api from "./api";
import { Gap, Line, PathField, Pick, Segments } from "./controls";
import * as form from "./form";
import { choose } from "./picker";

const WORDS: Record<form.Role, { letter: string; text: string; from: [form.From, string][] }> = {
  target: {
    letter: "A",
    text: "the target: the run you ship",
    from: [
      ["model", "A model"],
      ["recording", "Run or dump"],
    ],
  },
  reference: {
    letter: "B",
    text: "the reference: the run you trust",
    from: [
      ["model", "A model"],
      ["recording", "Reference run"],
      ["intermediates", "Intermediates file"],
    ],
  },
};
const EXAMPLES: Record<form.From, string> = {
  model: "model.onnx, model.aimodel, model.py:attribute",
  recording: "reference.run, or any dump",
  intermediates: "main.aimodelintermediates",
};
/** Options that most people look for, by the names that people know them by. */
const TITLES: Record<string, string> = {
  function: "Function",
  compute_units: "Compute unit",
  provider: "Provider",
  device: "Device",
  backend: "Backend",
  fusion: "Graph shown",
  dtype: "Precision",
};
const CHOICES: Record<string, Record<string, string>> = {
  fusion: { "as-executed": "As executed", unfused: "Original" },
  compute_units: { "": "All", cpu: "CPU", gpu: "GPU", neural_engine: "Neural Engine" },
  dtype: { "": "as written" },
};

export function Side({ role }: { role: form.Role }): JSX.Element {
  const words = WORDS[role];
  const side = form.sides[role];
  const description = side.description.value;
  const path = `${role}-path`;
  const title = `Configuration ${words.letter}`;
  return (
    <section class="box" aria-label={title}>
      <header>
        <span class={`lt ${role === "reference" ? "b" : ""}`} aria-hidden="true">
          {words.letter}
        </span>
        <h2>{title}</h2>
        <span class="dim">{words.text}</span>
      </header>
      <div class="f">
        <Line label="Source">
          <Segments label={`Take ${words.letter} from`} value={side.from.value} choices={words.from} onChoose={(from) => (side.from.value = from)} />
        </Line>
        <Line label={side.from.value === "model" ? "Model" : side.from.value === "recording" ? "Run or dump" : "Intermediates"} of={path}>
          <PathField
            id={path}
            value={side.path.value}
            placeholder={EXAMPLES[side.from.value]}
            onInput={(value) => (side.path.value = value)}
            onChoose={() => void choose(side.from.value === "model" ? "a model" : "a run or a dump", (path) => (side.path.value = path))}
            list={side.from.value === "recording" ? "earlier-runs" : undefined}
            wrong={form.gap(path)}
          />
        </Line>
        <Gap of={path} text={form.gap(path)} />
        <PathDescription role={role} description={description} />
        <Running role={role} description={description} />
        {role === "reference" && description?.kind === "recording" && <ItsModel />}
        {role === "target" ? <Inputs /> : <SameInputs />}
      </div>
    </section>
  );
}

function PathDescription({ role, description }: { role: form.Role; description: api.Seen | null }): JSX.Element | null {
  const [busy, setBusy] = useState(false);
  if (!description || !description.text) return null;
  const side = form.sides[role];
  const check = (): void => {
    setBusy(true);
    api
      .check(form.spec.value[role])
      .then(
        (description) => {
          if (side.path.value.trim() === description.path) side.description.value = description;
        },
        (error: unknown) => {
          const problem = problemOf(error);
          side.description.value = { ...description, text: problem.problem, problem };
        },
      )
      .finally(() => setBusy(false));
  };
  const bad = description.problem !== null;
  const good = !bad && description.sure && (description.kind === "model" || description.kind === "recording");
  return (
    <div class={`hint ${good ? "ok" : bad ? "bad" : ""}`} role={bad ? "alert" : "status"}>
      {good && <Glyph level="close" size={9} />}
      {bad ? (
        <span>
          <b>{description.problem?.problem}</b>
          {description.problem?.cure && `. Fix: ${description.problem.cure}`}
        </span>
      ) : (
        <span>{description.text}</span>
      )}
      {description.kind === "model" && !description.sure && (
        <button type="button" class="btn s check" disabled={busy} title="Open the model now (runs its code) and show its inputs" onClick={check}>
          {busy ? "Opening…" : "Check"}
        </button>
      )}
      {description.candidates.length > 0 && (
        <span class="cands">
          {description.candidates.slice(0, 8).map((one) => (
            <button type="button" class="btn s" onClick={() => (side.path.value = one)}>
              {one.slice(one.lastIndexOf(":") + 1)}
            </button>
          ))}
        </span>
      )}
    </div>
  );
}

function Running({ role, description }: { role: form.Role; description: api.Seen | null }): JSX.Element | null {
  const side = form.sides[role];
  const runtimes = description?.runtimes ?? [];
  const chosen = runtimes.find((one) => one.name === side.runtime.value) ?? runtimes[0];
  if (!chosen) return null;
  const first = chosen.options.filter((option) => option.name in TITLES);
  first.sort((a, b) => Object.keys(TITLES).indexOf(a.name) - Object.keys(TITLES).indexOf(b.name));
  const more = chosen.options.filter((option) => !(option.name in TITLES));
  const changed = more.filter((option) => (side.options.value[option.name] ?? option.default) !== option.default).length;
  return (
    <>
      <Line label="Runtime" of={`${role}-runtime`}>
        <Pick
          id={`${role}-runtime`}
          value={chosen.name}
          choices={runtimes.map((one) => [one.name, one.version ? `${one.name} ${one.version}` : `${one.name}, not installed`] as const)}
          onChoose={(name) => (side.runtime.value = name === runtimes[0]?.name ? "" : name)}
        />
      </Line>
      {chosen.cure && <div class="hint bad">Not installed: {chosen.cure}</div>}
      {first.map((option) => (
        <Option key={`${chosen.name}.${option.name}`} role={role} option={option} />
      ))}
      {more.length > 0 && (
        <details class="more-options">
          <summary>
            More options{changed > 0 && <b> · {changed} changed</b>}
          </summary>
          <div class="f inner">
            {more.map((option) => (
              <Option key={`${chosen.name}.${option.name}`} role={role} option={option} help />
            ))}
          </div>
        </details>
      )}
    </>
  );
}

function Option({ role, option, help = false }: { role: form.Role; option: api.OptionForm; help?: boolean }): JSX.Element {
  const side = form.sides[role];
  const id = useId();
  const value = side.options.value[option.name] ?? option.default;
  const put = (next: string): void => {
    side.options.value = { ...side.options.value, [option.name]: next };
  };
  const label = TITLES[option.name] ?? option.name.replaceAll("_", " ");
  const words = CHOICES[option.name] ?? {};
  const choices = option.choices.map((choice) => [choice, words[choice] ?? (choice || "default")] as const);
  const beside = option.choices.length <= 4 && choices.reduce((sum, [, text]) => sum + text.length, 0) <= 36;
  return (
    <>
      <Line label={label} of={option.choices.length && beside ? undefined : id} title={option.help}>
        {option.choices.length ? (
          beside ? (
            <Segments label={label} value={value} choices={choices} onChoose={put} />
          ) : (
            <Pick id={id} value={value} choices={choices} onChoose={put} />
          )
        ) : option.type === "boolean" ? (
          <input id={id} type="checkbox" checked={value === "true"} onChange={(event) => put(String(event.currentTarget.checked))} />
        ) : (
          <input
            id={id}
            class="in"
            type={option.type === "integer" || option.type === "number" ? "number" : "text"}
            step={option.type === "integer" ? 1 : "any"}
            value={value}
            placeholder="default"
            onInput={(event) => put(event.currentTarget.value || option.default)}
          />
        )}
      </Line>
      {help && <div class="hint">{option.help}</div>}
    </>
  );
}

function ItsModel(): JSX.Element {
  return (
    <>
      <Line label="Its model" of="reference-model">
        <PathField
          id="reference-model"
          value={form.referenceModel.value}
          placeholder="none"
          onInput={(value) => (form.referenceModel.value = value)}
          onChoose={() => void choose("the model of the reference", (path) => (form.referenceModel.value = path))}
        />
      </Line>
      <div class="hint">If set, its ops run again on the target's values, which separates guilty from inherited.</div>
    </>
  );
}

const KINDS: [form.InputKind, string][] = [
  ["zeros", "Zeros"],
  ["ones", "Ones"],
  ["random", "Random"],
  ["file", "File"],
];

function Inputs(): JSX.Element | null {
  if (!form.runs.value) return null;
  const kind = form.inputKind.value;
  const by = form.recordedBy.value;
  const kinds: [form.InputKind, string][] = by ? [["recorded", "Recorded"], ...KINDS] : KINDS;
  const declared = Object.values(form.sides).flatMap((side) => side.description.value?.inputs ?? []);
  const open = declared.some((one) => one.shape === null || one.shape.includes(-1)) || declared.length === 0;
  return (
    <>
      <Line label="Inputs">
        <div class="inputs">
          <Segments label="Inputs" value={kind} choices={kinds} onChoose={(next) => (form.chosenInputs.value = next)} />
          {kind === "random" && (
            <input class="in seed" type="number" min={0} aria-label="Seed" title="Seed" value={form.seed.value} onInput={(event) => (form.seed.value = event.currentTarget.value)} />
          )}
          {kind === "file" && (
            <PathField
              id="input-file"
              value={form.inputFile.value}
              placeholder=".npz, .npy, .safetensors, a run, file.py:function"
              onInput={(value) => (form.inputFile.value = value)}
              onChoose={() => void choose("inputs", (path) => (form.inputFile.value = path))}
              list="earlier-runs"
              wrong={form.gap("input-file")}
            />
          )}
        </div>
      </Line>
      <Gap of="input-file" text={form.gap("input-file")} />
      {(kind === "random" || kind === "zeros" || kind === "ones") && (
        <Line label="Shapes" of="shapes">
          <input
            id="shapes"
            class="in"
            type="text"
            spellcheck={false}
            value={form.shapes.value}
            placeholder={open ? "x=1,3,224,224 ids=1,16:i64" : "as the model declares"}
            onInput={(event) => (form.shapes.value = event.currentTarget.value)}
          />
        </Line>
      )}
      <div class="hint">
        {kind === "recorded" && by && `those recorded in ${by === "target" ? "A" : "B"}${declaredText(form.sides[by].description.value)}, given to both sides`}
        {kind !== "recorded" && (declared.length ? `${shapesText(declared)}, given to both sides` : "given to both sides")}
      </div>
    </>
  );
}

function SameInputs(): JSX.Element | null {
  if (!form.runs.value) return null;
  return (
    <>
      <Line label="Inputs">
        <div class="in still">the same as A</div>
      </Line>
      <div class="hint">Differing inputs would make every verdict meaningless, so they are checked.</div>
    </>
  );
}

function declaredText(description: api.Seen | null): string {
  return description?.inputs.length ? ` (${shapesText(description.inputs)})` : "";
}

function shapesText(inputs: readonly api.Seen["inputs"][number][]): string {
  const inputByName = new Map(inputs.map((one) => [one.name, one]));
  return [...inputByName.values()]
    .slice(0, 4)
    .map((one) => `${one.name}: ${one.dtype} ${one.shape ? `[${one.shape.map((n) => (n < 0 ? "?" : n)).join(", ")}]` : ""}`.trim())
    .join(", ");
}
