// The navigator: sync points in the order and through the filter that the person chose.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { GroupBrief, RowBrief, UnmatchedWindow } from "../api/source";
import { Chevron, Glyph, isHollow, Strip, Tag, TOP_LEVEL } from "../marks";
import { count, isDecibels, scoreText } from "../numbers";
import { ProblemText } from "../problem";
import * as state from "../state";
import { arrived, counts, cursor, limited, lineAt, matching, need, problem, shownBy, toggle, total, scrollTarget } from "./lines";

const HEIGHT = 30;
const ROLES: Record<string, string> = { "model-input": "model inputs", "model-output": "model outputs", parameter: "parameters", state: "states" };
/** Browsers stop laying out beyond some 33 million pixels; longer lists are scaled into that. */
const TALLEST = 30_000_000;

export function Navigator(): JSX.Element {
  return (
    <nav class="pane nav" aria-label="Navigator">
      <Head />
      <Filters />
      <List />
      <Unmatched />
    </nav>
  );
}

function Head(): JSX.Element {
  const by = (which: "similarity" | "operation") => () => {
    if (state.sort.value === which) state.descending.value = !state.descending.value;
    else {
      state.sort.value = which;
      state.descending.value = false;
    }
  };
  const button = (which: "similarity" | "operation", word: string, up: string, down: string): JSX.Element => {
    const on = state.sort.value === which;
    return (
      <button aria-pressed={on} onClick={by(which)} title={on ? `${state.descending.value ? down : up}; click to reverse` : `sort by ${which}`}>
        {word}
        {on && <span aria-hidden="true">{state.descending.value ? " ↓" : " ↑"}</span>}
      </button>
    );
  };
  return (
    <div class="head">
      <h2>Sync points</h2>
      <span class="dim" data-testid="matching">
        {count(matching.value)}
      </span>
      <span class="sp" />
      <span class="seg" role="group" aria-label="Sort">
        {button("similarity", "Similarity", "worst first", "best first")}
        {button("operation", "Operation", "execution order", "last first")}
      </span>
      <button class="ico s tog" aria-pressed={state.grouped.value} aria-label="Group by module" title="Group by module" onClick={() => (state.grouped.value = !state.grouped.value)}>
        <svg width="13" height="13" viewBox="0 0 13 13" aria-hidden="true">
          <path d="M1.5 2.5h10M4 6.5h7.5M4 10.5h7.5M1.5 6.5h.5M1.5 10.5h.5" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" />
        </svg>
      </button>
    </div>
  );
}

function Filters(): JSX.Element {
  const shown = state.overview.value;
  const title = shown?.metrics.find((one) => one.id === shownBy.value)?.title ?? shownBy.value;
  const level = (name: string, title: string, mark: JSX.Element): JSX.Element => {
    const on = state.levels.value.includes(name);
    return (
      <button
        class="vchip"
        aria-pressed={on}
        title={`${title}; by the chosen metric`}
        aria-label={`${title}: ${counts.value[name] ?? 0}`}
        onClick={() => (state.levels.value = on ? state.levels.value.filter((one) => one !== name) : [...state.levels.value, name])}
      >
        {mark}
        {count(counts.value[name] ?? 0)}
      </button>
    );
  };
  return (
    <div class="filters">
      <div class="search">
        <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">
          <path d="M1 2h10M3 6h6M5 10h2" stroke="currentColor" stroke-width="1.4" fill="none" />
        </svg>
        <input id="filter" type="search" placeholder="Filter name or module" aria-label="Filter name or module" value={state.text.value} onInput={(event) => (state.text.value = event.currentTarget.value)} />
        <select
          class="types"
          aria-label="Op type"
          value={state.types.value[0] ?? ""}
          onChange={(event) => (state.types.value = event.currentTarget.value ? [event.currentTarget.value] : [])}
        >
          <option value="">All types</option>
          {shown?.roles.map((role) => (
            <option value={role}>{ROLES[role] ?? role}</option>
          ))}
          <optgroup label="Ops">
            {shown?.types.map((type) => (
              <option value={type}>{type}</option>
            ))}
          </optgroup>
        </select>
      </div>
      <div class="chips" role="group" aria-label="Filter by how bad it is by the chosen metric">
        {level("large", "large", <Glyph level="large" />)}
        {level("moderate", "moderate", <Glyph level="moderate" />)}
        {level(
          "inherited",
          "inherited: affected, not guilty",
          <>
            <Glyph level="large" guilt="inherited" />
            <Glyph level="moderate" guilt="inherited" />
          </>,
        )}
        {level("close", "close", <Glyph level="close" />)}
        {level("none", "no verdict", <Glyph level="none" />)}
      </div>
      <p class="dim by" data-testid="counts-by">
        {limited.value === null
          ? `counts by ${title} where it has limits, else by the verdict`
          : limited.value
            ? `counts by ${title} alone; the verdict above by all limits`
            : `${title} has no limits: counts by the verdict`}
      </p>
      {(state.module.value || state.brush.value) && (
        <div class="chips">
          {state.module.value && (
            <button class="chip t" onClick={() => (state.module.value = "")} title="Show all modules">
              in {state.module.value} ×
            </button>
          )}
          {state.brush.value && (
            <button class="chip t" onClick={() => (state.brush.value = null)} title="Show the whole run">
              ops {state.brush.value[0]}–{state.brush.value[1] - 1} ×
            </button>
          )}
        </div>
      )}
    </div>
  );
}

function List(): JSX.Element {
  const list = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [bubble, setBubble] = useState(false);
  const lines = total.value;
  void arrived.value;
  const full = lines * HEIGHT;
  const tall = Math.min(full, TALLEST);
  // Beyond the tallest a pixel of the bar is more than a pixel of the list.
  const factor = full > tall ? (full - view.height) / (tall - view.height) : 1;
  const offset = view.top * factor;
  const first = Math.max(0, Math.floor(offset / HEIGHT) - 4);
  const last = Math.min(lines, Math.ceil((offset + view.height) / HEIGHT) + 4);

  useLayoutEffect(() => {
    const element = list.current;
    if (!element) return;
    const measure = (): void => setView({ top: element.scrollTop, height: element.clientHeight });
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  useEffect(() => need(first, last), [first, last, arrived.value]);
  useEffect(() => {
    const element = list.current;
    const place = scrollTarget.value?.index;
    if (!element || place === undefined) return;
    const above = element.scrollTop * factor;
    const lineTop = place * HEIGHT;
    if (lineTop < above + (state.grouped.value ? HEIGHT : 0) || lineTop + HEIGHT > above + element.clientHeight)
      element.scrollTop = Math.max(0, (lineTop - Math.round((element.clientHeight * 0.45) / HEIGHT) * HEIGHT) / factor);
  }, [scrollTarget.value]);

  let fading = 0;
  const scrolled = (event: JSX.TargetedEvent<HTMLDivElement>): void => {
    setView({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight });
    if (lines < 2000) return;
    setBubble(true);
    clearTimeout(fading);
    fading = window.setTimeout(() => setBubble(false), 900);
  };
  const rendered: JSX.Element[] = [];
  for (let index = first; index < last; index++) {
    const top = index * HEIGHT - offset + view.top;
    rendered.push(<ListLine key={index} index={index} top={top} />);
  }
  const middle = lineAt(Math.floor((first + last) / 2));
  return (
    <div class="listbox">
      <div
        ref={list}
        id="list"
        class={isDecibels(shownBy.value) ? "list" : "list long"}
        role="tree"
        aria-label="Sync points"
        tabIndex={0}
        onScroll={scrolled}
        aria-activedescendant={cursor.value === null ? undefined : `line-${cursor.value}`}
        onMouseLeave={() => (state.hovered.value = null)}
      >
        <div style={{ height: `${tall}px`, position: "relative" }}>{rendered}</div>
      </div>
      {bubble && middle && (
        <div class="bubble" aria-hidden="true">
          {middle.group || TOP_LEVEL} · row {count(Math.floor((first + last) / 2) + 1)} of {count(lines)}
        </div>
      )}
      {problem.value && <ListProblem />}
      {!lines && arrived.value > 0 && !problem.value && <Empty />}
    </div>
  );
}

function ListProblem(): JSX.Element {
  return (
    <div class="empty err over">
      <b>The list could not be loaded</b>
      {problem.value && <ProblemText problem={problem.value} />}
    </div>
  );
}

function Empty(): JSX.Element {
  const all = state.overview.value?.rows ?? 0;
  if (!state.filtered.value)
    return (
      <div class="empty over">
        <b>No sync point</b>
        <span>No tensor of the target found a partner in the reference. Pin pairs with --map, see docs/matching.md; the list below has them all.</span>
      </div>
    );
  const filters = [
    state.text.value && `name “${state.text.value}”`,
    state.types.value.length && `type ${state.types.value.map((type) => ROLES[type] ?? type).join(", ")}`,
    state.module.value && `module ${state.module.value}`,
    state.levels.value.length && `verdict ${state.levels.value.join(", ")}`,
    state.brush.value && `ops ${state.brush.value[0]}–${state.brush.value[1] - 1}`,
  ].filter(Boolean);
  return (
    <div class="empty over">
      <b>No sync point matches.</b>
      <span>
        {count(all)} are hidden by the filter: {filters.join(", ")}.
      </span>
      <button class="btn s" onClick={state.clearFilters}>
        Clear filter
      </button>
    </div>
  );
}

function ListLine({ index, top }: { index: number; top: number }): JSX.Element {
  const line = lineAt(index);
  const style = { position: "absolute", top: `${top}px`, left: 0, right: 0 } as const;
  if (!line)
    return (
      <div class="row skeleton" style={style} aria-hidden="true">
        <i />
        <span />
        <span />
      </div>
    );
  if (line.kind === "group") return <Group line={line} index={index} style={style} />;
  return <Row line={line} index={index} style={style} />;
}

type Placed = { index: number; style: JSX.CSSProperties };

function Group({ line, index, style }: Placed & { line: GroupBrief }): JSX.Element {
  return (
    <div
      id={`line-${index}`}
      class={`grp ${cursor.value === index ? "at" : ""}`}
      style={style}
      role="treeitem"
      aria-level={1}
      aria-expanded={line.open}
      aria-selected={false}
      onClick={() => {
        cursor.value = index;
        toggle(line.group);
      }}
      title={line.group || "outside every module"}
    >
      <Chevron open={line.open} />
      <Glyph level={line.level} guilt={line.guilt} />
      <span class="nm start">
        <bdi>{line.group || TOP_LEVEL}</bdi>
      </span>
      <span class="ct">{count(line.count)}</span>
      <span class="sp" />
      <Strip cells={line.cells} />
      <span class={`num score v-${line.level}`} style={{ minWidth: "44px" }}>
        {line.same_bytes === null ? scoreText(shownBy.value, line.score, line.bound) : line.same_bytes ? "=" : "≠"}
      </span>
    </div>
  );
}

function Row({ line, index, style }: Placed & { line: RowBrief }): JSX.Element {
  const { level, guilt } = line;
  const hollow = isHollow(level, guilt);
  const edge = guilt === "guilty" || guilt === "first-non-finite" ? "guilty" : hollow ? "inh" : "";
  const inside = state.grouped.value && line.group ? line.reference.replace(`${line.group}.`, "") : line.reference;
  const second = line.module && !line.reference.startsWith(line.module) ? (state.grouped.value ? inside : `${line.module} · ${line.reference}`) : inside;
  return (
    <div
      id={`line-${index}`}
      class={`row ${state.grouped.value ? "" : "flat"} ${edge} ${state.hovered.value === line.row ? "hov" : ""}`}
      style={{ ...style, "--tint": `var(--${level}-line)` } as JSX.CSSProperties}
      role="treeitem"
      aria-level={state.grouped.value ? 2 : 1}
      aria-selected={state.selected.value === line.row}
      data-row={line.row}
      onClick={() => {
        cursor.value = index;
        state.select(line.row);
      }}
      onMouseEnter={() => (state.hovered.value = line.row)}
      title={`${line.target} ↔ ${line.reference}${line.module ? `\n${line.module}` : ""}${line.reason ? `\n${line.reason}` : ""}`}
    >
      <Glyph level={level} guilt={guilt} />
      <div class="cut">
        <div class="a">
          <span class="cut start">
            <bdi>{line.target}</bdi>
          </span>
          {line.part && <span class="dim">{line.part}</span>}
          <Tag guilt={guilt} level={level} />
        </div>
        <div class="b start">
          <bdi>{second}</bdi>
        </div>
      </div>
      {line.basis === "values" ? <Bar line={line} hollow={hollow} /> : line.same_bytes !== null ? null : <span class="chip basis" title={line.basis}>{line.basis === "statistics" ? "stat." : line.basis || line.reason_code}</span>}
      <div class={`num score v-${level} ${line.same_bytes !== null ? "bytes" : ""}`}>
        {line.same_bytes !== null ? (line.same_bytes ? "equal bytes" : "different bytes") : line.bad > 0 && line.score === null ? "NaN" : scoreText(shownBy.value, line.score, line.bound)}
        {line.bad > 0 && <small> ×{line.bad > 999 ? "…" : line.bad}</small>}
      </div>
    </div>
  );
}

function Bar({ line, hollow }: { line: RowBrief; hollow: boolean }): JSX.Element {
  const width = 50;
  const length = Math.max(3, line.fill * width);
  const { level } = line;
  return (
    <svg width={width} height="10" viewBox={`0 0 ${width} 10`} aria-hidden="true">
      <rect y="4" width={width} height="3" rx="1" fill="var(--surface-3)" />
      {line.bad > 0 ? (
        <path d={`M0 5.5h${width}`} stroke="var(--large-line)" stroke-width="2.5" stroke-dasharray="2 3" />
      ) : level === "close" || level === "none" ? (
        <rect y="4" width={length} height="3" rx="1" fill="var(--none-fill)" />
      ) : hollow ? (
        <rect x=".6" y="3.1" width={length - 1} height="4.8" rx="1" fill="var(--surface)" stroke={`var(--${level}-line)`} stroke-width="1.2" />
      ) : (
        <rect y="2.5" width={length} height="6" rx="1" fill={`var(--${level}-fill)`} />
      )}
      {line.ticks.map((tick) => (
        <path d={`M${(tick * width).toFixed(1)} 1v9`} stroke="var(--line-2)" />
      ))}
    </svg>
  );
}

function Unmatched(): JSX.Element | null {
  const [chosen, setShown] = useState<boolean | null>(null);
  const [list, setList] = useState<UnmatchedWindow | null>(null);
  const whole = state.overview.value;
  // Where nothing is paired this is all there is to see.
  const shown = chosen ?? whole?.rows === 0;
  useEffect(() => {
    if (!shown || !whole) return;
    let isCurrent = true;
    const put = (window: UnmatchedWindow): void => {
      if (isCurrent) setList(window);
    };
    void state.source.unmatched(state.text.value, 0, 200).then(put, () => undefined);
    return () => {
      isCurrent = false;
    };
  }, [shown, whole, state.text.value]);
  if (!whole) return null;
  const none = !whole.unmatched_target && !whole.unmatched_reference;
  return (
    <div class="un">
      <button class="grp" aria-expanded={shown} disabled={none} onClick={() => setShown(!shown)}>
        <Chevron open={shown} />
        <span class="nm">Unmatched</span>
        <span class="ct">
          {none ? "none" : `${count(whole.unmatched_target)} target · ${count(whole.unmatched_reference)} reference`}
        </span>
        <span class="sp" />
        {shown && <span class="ct">reason</span>}
      </button>
      {shown && (
        <div class="unlist" tabIndex={0} aria-label="Unmatched tensors">
          {list?.items.map((one) => (
            <button class="unr" title={[one.detail || one.reason, one.cure].filter(Boolean).join("; ")} aria-pressed={state.isLookedAt(one)} onClick={() => state.lookAt(one)}>
              <Glyph level="none" />
              <span class="cut">
                {one.op} <span class="dim">{one.side === "reference" ? "reference" : one.module}</span>
              </span>
              <span class="chip">{one.reason}</span>
            </button>
          ))}
          {list && list.total > list.items.length && <div class="unr dim">and {count(list.total - list.items.length)} more; filter by name</div>}
        </div>
      )}
    </div>
  );
}
