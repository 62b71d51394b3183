// The data of a report: everything lies in the page itself, and the questions are answered here.
// The answers are those of the server (page/navigator.py, page/row_table.py); tests hold the two together.
import {
  Failure,
  type Distribution,
  type Drift,
  type Found,
  type Graph,
  type GroupBrief,
  type HeatMap,
  type Level,
  type Overview,
  type RowBrief,
  type RowDetail,
  type RowQuery,
  type RowStates,
  type RowWindow,
  type Side,
  type Source,
  type SourceFile,
  type UnmatchedWindow,
} from "./source";
import { floats, integers } from "../decode";

interface MetricColumns {
  states: RowStates;
  drift: Drift;
  fills: string;
  ticks: string;
  rank: string;
}

/** What the report was written with. */
export interface ReportData {
  overview: Overview;
  rows: RowBrief[];
  search: string[];
  metrics: Record<string, MetricColumns>;
  unmatched: UnmatchedWindow["items"];
  details: Record<string, RowDetail>;
  heatmaps: Record<string, HeatMap>;
  distributions: Record<string, Distribution>;
  graphs: Partial<Record<Side, Graph>>;
  files: SourceFile[];
}

const LEVELS: Record<string, Level> = { c: "close", m: "moderate", l: "large", n: "none" };
const CELLS = 24;

/** The data of the page, unpacked; null where the page has none, because a server has it. */
export async function reportData(): Promise<ReportData | null> {
  const encoded = document.getElementById("report-data")?.textContent;
  if (!encoded) return null;
  const packed = Uint8Array.from(atob(encoded.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return (await new Response(stream).json()) as ReportData;
}

class Column {
  readonly levels: Level[];
  readonly scores: Float32Array;
  readonly bounds: string;
  readonly fills: Float32Array;
  readonly ticks: Float32Array;
  /** Rows with the least similar first, and where each stands there. */
  readonly rank: number[];
  readonly place: Map<number, number>;

  constructor(data: ReportData, metric: string) {
    const columns = data.metrics[metric];
    if (!columns) throw new Failure({ problem: `this report has no metric ${metric}`, cure: "" });
    this.levels = [...columns.states.levels].map((letter) => LEVELS[letter] ?? "none");
    this.scores = floats(columns.states.scores);
    this.bounds = columns.states.bounds;
    this.fills = floats(columns.fills);
    this.ticks = floats(columns.ticks);
    this.rank = [...integers(columns.rank)];
    this.place = new Map(this.rank.map((row, position) => [row, position]));
  }
}

type Line = RowBrief | { group: string; rows: number[] };

/** The report as a source. */
export function reportSource(data: ReportData): Source {
  const columns = new Map<string, Column>();
  const column = (metric: string): Column => {
    let cached = columns.get(metric);
    if (!cached) columns.set(metric, (cached = new Column(data, metric)));
    return cached;
  };
  const execution = data.rows.map((_, row) => row).sort((a, b) => (data.rows[a] as RowBrief).order - (data.rows[b] as RowBrief).order);

  const brief = (row: number, metric: string): RowBrief => {
    const by = column(metric);
    const score = by.scores[row] as number;
    const tick = by.ticks[row] as number;
    return {
      ...(data.rows[row] as RowBrief),
      level: by.levels[row] as Level,
      score: Number.isNaN(score) ? null : score === Infinity ? "inf" : score === -Infinity ? "-inf" : score,
      bound: by.bounds[row] === "b",
      fill: by.fills[row] as number,
      ticks: Number.isNaN(tick) ? [] : [0.5, tick],
    };
  };
  const nameOf = (row: number, metric: string): string => {
    const level = column(metric).levels[row] as Level;
    const inherited = (data.rows[row] as RowBrief).guilt === "inherited" && (level === "moderate" || level === "large");
    return inherited ? "inherited" : level;
  };
  const chosen = (query: RowQuery): { rows: number[]; counts: Record<string, number> } => {
    const text = query.text.toLowerCase();
    const counts: Record<string, number> = { close: 0, moderate: 0, large: 0, none: 0, inherited: 0 };
    const passes = (row: number): boolean => {
      const one = data.rows[row] as RowBrief;
      if (text && !(data.search[row] as string).includes(text)) return false;
      if (query.types.length && !query.types.includes(one.type) && !(data.overview.roles.includes(one.role) && query.types.includes(one.role))) return false;
      const inside = one.module === query.module || one.module.startsWith(`${query.module}.`) || one.group === query.module;
      if (query.module && !inside) return false;
      if (one.order < query.start || (query.stop && one.order >= query.stop)) return false;
      const name = nameOf(row, query.metric);
      counts[name] = (counts[name] ?? 0) + 1;
      return !query.levels.length || query.levels.includes(name);
    };
    const order = query.sort === "similarity" ? column(query.metric).rank : execution;
    const rows = order.filter(passes);
    return { rows: query.descending ? rows.reverse() : rows, counts };
  };
  const severity = (row: number, metric: string): number => {
    const level = column(metric).levels[row] as Level;
    if (level === "none") return -1;
    const base = { close: 0, moderate: 2, large: 4 }[level];
    return base - Number((data.rows[row] as RowBrief).guilt === "inherited" && base > 0);
  };
  const worst = (rows: readonly number[], metric: string): number => {
    const { place } = column(metric);
    return rows.reduce((a, b) => {
      const by = severity(b, metric) - severity(a, metric);
      return by > 0 || (by === 0 && (place.get(b) as number) < (place.get(a) as number)) ? b : a;
    });
  };
  const groupLine = (group: string, members: readonly number[], metric: string, open: boolean): GroupBrief => {
    const rows = [...members].sort((a, b) => (data.rows[a] as RowBrief).order - (data.rows[b] as RowBrief).order);
    const bins = Math.min(rows.length, CELLS);
    const cells: GroupBrief["cells"] = [];
    for (let bin = 0, at = 0; bin < bins; bin++) {
      // As numpy.array_split: the first pieces are one longer.
      const size = Math.floor(rows.length / bins) + Number(bin < rows.length % bins);
      const one = worst(rows.slice(at, at + size), metric);
      cells.push({ level: column(metric).levels[one] as Level, guilt: (data.rows[one] as RowBrief).guilt });
      at += size;
    }
    const one = brief(worst(rows, metric), metric);
    return { kind: "group", group, count: rows.length, open, level: one.level, guilt: one.guilt, score: one.score, bound: one.bound, same_bytes: one.same_bytes, cells };
  };
  const lines = (query: RowQuery, rows: readonly number[]): Line[] => {
    if (!query.grouped) return rows.map((row) => data.rows[row] as RowBrief);
    const groups = new Map<string, number[]>();
    for (const row of rows) {
      const group = (data.rows[row] as RowBrief).group;
      const own = groups.get(group);
      if (own) own.push(row);
      else groups.set(group, [row]);
    }
    return [...groups].flatMap(([group, own]) => [
      { group, rows: own },
      ...(query.open.includes(group) ? own.map((row) => data.rows[row] as RowBrief) : []),
    ]);
  };
  const missing = (what: string): Failure =>
    new Failure({
      problem: `this report does not hold ${what}, only those of the worst and the first that diverge`,
      cure: "open the comparison with: syncpoint view",
    });
  const lookUp = async <T>(table: Record<string, T>, row: number, what: string): Promise<T> => {
    const entry = table[String(row)];
    if (!entry) throw missing(what);
    return entry;
  };
  return {
    live: false,
    overview: async () => data.overview,
    async rows(query, offset, limit): Promise<RowWindow> {
      const { rows, counts } = chosen(query);
      const all = lines(query, rows);
      const items = all
        .slice(offset, offset + limit)
        .map((line) => ("rows" in line ? groupLine(line.group, line.rows, query.metric, query.open.includes(line.group)) : brief(line.row, query.metric)));
      return { total: all.length, matching: rows.length, offset, items, counts };
    },
    async place(query, row): Promise<Found> {
      const group = data.rows[row]?.group ?? "";
      const open = query.grouped && !query.open.includes(group) ? [...query.open, group] : query.open;
      const all = lines({ ...query, open }, chosen(query).rows);
      const index = all.findIndex((line) => "row" in line && line.row === row);
      return { index: index < 0 ? null : index, group };
    },
    async unmatched(text, offset, limit): Promise<UnmatchedWindow> {
      const lowered = text.toLowerCase();
      const matches = data.unmatched.filter((one) => `${one.op}\n${one.module}`.toLowerCase().includes(lowered));
      return { total: matches.length, offset, items: matches.slice(offset, offset + limit) };
    },
    states: async (metric) => {
      column(metric);
      return (data.metrics[metric] as MetricColumns).states;
    },
    drift: async (metric) => {
      column(metric);
      return (data.metrics[metric] as MetricColumns).drift;
    },
    async row(row, metric) {
      const rowDetail = await lookUp(data.details, row, "the details of this sync point");
      return { ...rowDetail, brief: brief(row, metric) };
    },
    async heatmap(row, query) {
      const heatmap = await lookUp(data.heatmaps, row, "the values of this sync point");
      const same = (a: readonly number[] | undefined, b: readonly number[]): boolean => a === undefined || a.every((one, i) => one === b[i]);
      const axes = query.rowAxis === undefined || (query.rowAxis === heatmap.row_axis && query.columnAxis === heatmap.column_axis);
      if (!axes || !same(query.index, heatmap.at) || !same(query.window, heatmap.window)) throw missing("another slice");
      return heatmap;
    },
    distribution: (row) => lookUp(data.distributions, row, "the values of this sync point"),
    async graph(side, group): Promise<Graph> {
      if (group) throw missing("the ops of this group");
      const graph = data.graphs[side];
      if (!graph) throw missing("the graph");
      return graph;
    },
    async file(side, file) {
      const sourceFile = data.files.find((one) => one.side === side && one.file === file);
      if (!sourceFile) throw missing("this file");
      return sourceFile;
    },
  };
}
