// A file, read-only, with the marks of its lines beside it.
import { python } from "@codemirror/lang-python";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorState, RangeSetBuilder, StateEffect, type Extension } from "@codemirror/state";
import { Decoration, EditorView, gutter, GutterMarker, highlightSpecialChars, keymap, lineNumbers, ViewPlugin, type DecorationSet, type ViewUpdate } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { render, type JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Guilt, Level, SourceFile } from "../api/source";
import { Glyph } from "../marks";
import * as state from "../state";

const MOST_MARKS = 8;
const refresh = StateEffect.define<null>();

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.controlKeyword, tags.definitionKeyword, tags.moduleKeyword, tags.operatorKeyword, tags.bool, tags.null], color: "var(--code-kw)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-str)" },
  { tag: [tags.comment, tags.docString], color: "var(--code-com)", fontStyle: "italic" },
  { tag: [tags.definition(tags.function(tags.variableName)), tags.definition(tags.className)], color: "var(--code-def)", fontWeight: "700" },
  { tag: tags.self, color: "var(--code-self)" },
]);

/** How bad, for finding the worst of a line: level, then guilt, then nothing. */
function severity(row: number): number {
  const rowState = state.stateOf(row);
  if (!rowState) return -1;
  const level = { none: 0, close: 1, moderate: 3, large: 5 }[rowState.level];
  return level - (rowState.guilt === "inherited" && level > 1 ? 1 : 0) + (rowState.guilt === "guilty" || rowState.guilt === "first-non-finite" ? 0.5 : 0);
}

function worstOf(rows: readonly number[]): number {
  return rows.reduce((worst, row) => (severity(row) > severity(worst) ? row : worst), rows[0] as number);
}

/** A click selects the worst op of a line, further clicks step through the others. */
export function nextOf(rows: readonly number[], selected: number | null): number {
  const index = selected === null ? -1 : rows.indexOf(selected);
  return index < 0 ? worstOf(rows) : (rows[(index + 1) % rows.length] as number);
}

class Mark extends GutterMarker {
  constructor(
    readonly rows: readonly number[],
    readonly all: boolean,
  ) {
    super();
    const chosen = state.selected.peek();
    const marks = this.shown().map(({ row, level, guilt }) => `${row}${level}${guilt}${all && row === chosen}`);
    // Where there are too many marks to be shown their number is boxed.
    this.key = [all && chosen !== null && rows.includes(chosen), ...marks].join();
  }
  readonly key: string;

  private shown(): { row: number; level: Level; guilt: Guilt }[] {
    const rows = this.all ? (this.rows.length > MOST_MARKS ? [] : this.rows) : [worstOf(this.rows)];
    return rows.map((row) => ({ row, level: state.stateOf(row)?.level ?? "none", guilt: state.stateOf(row)?.guilt ?? "" }));
  }

  override eq(other: GutterMarker): boolean {
    return other instanceof Mark && other.key === this.key && other.rows === this.rows;
  }

  override toDOM(): Node {
    const home = document.createElement("span");
    home.className = this.all ? "ann" : "gm";
    const chosen = state.selected.peek();
    render(
      <>
        {this.all && this.rows.length > MOST_MARKS && (
          <span class={chosen !== null && this.rows.includes(chosen) ? "cur" : ""}>{this.rows.length} ops</span>
        )}
        {this.shown().map(({ row, level, guilt }) => (
          <span class={this.all && row === chosen ? "cur" : ""} data-row={row}>
            <Glyph level={level} guilt={guilt} size={9} />
          </span>
        ))}
      </>,
      home,
    );
    return home;
  }

  override destroy(dom: Node): void {
    render(null, dom as HTMLElement);
  }
}

function marks(file: SourceFile, chosen: () => ReadonlySet<number>): Extension {
  const byLine = new Map(file.marks.map((mark) => [mark.line, mark.rows]));
  const rowsAt = (view: EditorView, from: number): readonly number[] | undefined => byLine.get(view.state.doc.lineAt(from).number);
  const click = (view: EditorView, from: number, event: Event): boolean => {
    const rows = rowsAt(view, from);
    if (!rows?.length) return false;
    const mark = (event.target as HTMLElement).closest?.("[data-row]");
    const own = mark?.closest(".ann") ? Number(mark.getAttribute("data-row")) : NaN;
    state.select(Number.isInteger(own) ? own : nextOf(rows, state.selected.peek()));
    return true;
  };
  const changes = (update: ViewUpdate): boolean => update.transactions.some((one) => one.effects.some((effect) => effect.is(refresh)));
  const one = (all: boolean): Extension =>
    gutter({
      class: all ? "cm-marks" : "cm-worst",
      side: all ? "after" : "before",
      lineMarker: (view, line) => {
        const rows = rowsAt(view, line.from);
        return rows?.length ? new Mark(rows, all) : null;
      },
      lineMarkerChange: changes,
      domEventHandlers: { click: (view, line, event) => click(view, line.from, event) },
    });
  const line = Decoration.line({ class: "sel", attributes: { "aria-current": "true" } });
  const producerLine = Decoration.line({ class: "made" });
  const decorate = (view: EditorView): DecorationSet => {
    const build = new RangeSetBuilder<Decoration>();
    const chosenLines = chosen();
    for (const { from, to } of view.visibleRanges)
      for (let offset = from; offset <= to; ) {
        const now = view.state.doc.lineAt(offset);
        if (byLine.has(now.number)) build.add(now.from, now.from, producerLine);
        if (chosenLines.has(now.number)) build.add(now.from, now.from, line);
        offset = now.to + 1;
      }
    return build.finish();
  };
  const lines = ViewPlugin.fromClass(
    class {
      decorations: DecorationSet;
      constructor(view: EditorView) {
        this.decorations = decorate(view);
      }
      update(update: ViewUpdate): void {
        if (update.viewportChanged || changes(update)) this.decorations = decorate(update.view);
      }
    },
    { decorations: (plugin) => plugin.decorations },
  );
  const inText = EditorView.domEventHandlers({
    click(event, view) {
      if (!view.state.selection.main.empty) return false;
      const offset = view.posAtCoords({ x: event.clientX, y: event.clientY }, false);
      return click(view, offset, event);
    },
  });
  const pick = keymap.of([{ key: "Enter", run: (view) => click(view, view.state.selection.main.head, new Event("key")) }]);
  return [one(false), lineNumbers({ domEventHandlers: { click: (view, block, event) => click(view, block.from, event) } }), one(true), lines, inText, pick];
}

export function Editor({ file, line }: { file: SourceFile; line: number }): JSX.Element {
  const home = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const chosen = useRef<ReadonlySet<number>>(new Set());
  const row = state.selected.value;
  // A fused op came from several lines. While the next one is on its way the line is the last one's.
  const own = useMemo(() => (row === null ? [] : file.marks.filter(({ rows }) => rows.includes(row)).map((mark) => mark.line)), [file, row]);
  chosen.current = new Set(own.includes(line) ? own : [line]);
  useEffect(() => {
    if (!home.current) return;
    const isPython = /\.pyi?$/.test(file.file) || !/\.\w+$/.test(file.file);
    view.current = new EditorView({
      parent: home.current,
      state: EditorState.create({
        doc: file.text ?? "",
        extensions: [
          EditorState.readOnly.of(true),
          EditorView.editable.of(false),
          EditorView.contentAttributes.of({ tabindex: "0", "aria-label": `Source of the ${file.side}, ${file.file}` }),
          isPython ? python() : [],
          syntaxHighlighting(colours),
          highlightSpecialChars(),
          marks(file, () => chosen.current),
        ],
      }),
    });
    return () => view.current?.destroy();
  }, [file]);
  const selected = state.selected.value;
  const states = state.states.value;
  useEffect(() => {
    const now = view.current;
    if (!now) return;
    const effects: StateEffect<unknown>[] = [refresh.of(null)];
    now.dispatch({ effects });
  }, [file, line, selected, states]);
  useEffect(() => {
    const now = view.current;
    if (!now || line < 1 || line > now.state.doc.lines) return;
    const offset = now.state.doc.line(line).from;
    // A line that is in view stays where it is, above all under the pointer that chose it.
    const box = now.scrollDOM.getBoundingClientRect();
    const lineBox = now.coordsAtPos(offset);
    if (lineBox && lineBox.top >= box.top + 18 && lineBox.bottom <= box.bottom - 18) return;
    now.dispatch({ effects: EditorView.scrollIntoView(offset, { y: "center" }) });
  }, [file, line]);
  return <div class="code editor" ref={home} data-testid="source" />;
}
