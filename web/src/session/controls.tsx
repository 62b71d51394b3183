// Fields of the form: choices side by side, lists, text, and errors in three parts.
import type { ComponentChildren, JSX } from "preact";

export function Segments<T extends string>({
  label,
  value,
  choices,
  onChoose,
}: {
  label: string;
  value: T;
  choices: readonly (readonly [T, string])[];
  onChoose: (value: T) => void;
}): JSX.Element {
  return (
    <div class="seg l" role="group" aria-label={label}>
      {choices.map(([id, text]) => (
        <button type="button" aria-pressed={id === value} onClick={() => onChoose(id)}>
          {text}
        </button>
      ))}
    </div>
  );
}

export function Pick({
  id,
  value,
  choices,
  onChoose,
  label,
}: {
  id?: string;
  value: string;
  choices: readonly (readonly [string, string])[];
  onChoose: (value: string) => void;
  label?: string;
}): JSX.Element {
  return (
    <select id={id} class="in sel" aria-label={label} value={value} onChange={(event) => onChoose(event.currentTarget.value)}>
      {choices.map(([name, text]) => (
        <option value={name}>{text}</option>
      ))}
    </select>
  );
}

export function PathField({
  id,
  value,
  placeholder,
  onInput,
  onChoose,
  list,
  wrong = "",
}: {
  id: string;
  value: string;
  placeholder: string;
  onInput: (value: string) => void;
  onChoose: () => void;
  list?: string | undefined;
  /** What is wrong with it; said by a Gap below. */
  wrong?: string;
}): JSX.Element {
  return (
    <div class={wrong ? "in wrong" : "in"}>
      <input
        id={id}
        type="text"
        spellcheck={false}
        autocomplete="off"
        list={list}
        value={value}
        placeholder={placeholder}
        aria-invalid={wrong ? true : undefined}
        aria-describedby={wrong ? `${id}-gap` : undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <button type="button" class="btn s" onClick={onChoose} aria-label={`Choose for ${id.replaceAll("-", " ")}`}>
        Choose…
      </button>
    </div>
  );
}

/** What is missing in the field above. */
export function Gap({ of, text }: { of: string; text: string }): JSX.Element | null {
  if (!text) return null;
  return (
    <div id={`${of}-gap`} class="hint bad" role="alert">
      {text}
    </div>
  );
}

/** One line of the form. */
export function Line({ label, of, children, title }: { label: string; of?: string | undefined; children: ComponentChildren; title?: string }): JSX.Element {
  return (
    <>
      {of ? (
        <label for={of} title={title}>
          {label}
        </label>
      ) : (
        <span class="lb" title={title}>
          {label}
        </span>
      )}
      {children}
    </>
  );
}
