// Where the page gets its data: a server, or the report that it is part of.
import type { components } from "./schema";

type S = components["schemas"];
export type Overview = S["Overview"];
export type Finding = S["FindingCard"];
export type MetricInfo = S["MetricInfo"];
export type RowBrief = S["RowBrief"];
export type GroupBrief = S["GroupBrief"];
export type RowWindow = S["RowWindow"];
export type RowDetail = S["RowDetail"];
export type RowStates = S["RowStates"];
export type Found = S["RowPlace"];
export type UnmatchedWindow = S["UnmatchedWindow"];
export type Drift = S["DriftStrip"];
export type HeatMap = S["HeatMap"];
export type Distribution = S["Distribution"];
export type Graph = S["GraphColumns"];
export type SourceFile = S["SourceFile"];
export type Problem = S["Problem"];
export type Side = "target" | "reference";
export type Level = RowBrief["level"];
export type Guilt = RowBrief["guilt"];
export type Score = RowBrief["score"];

export interface RowQuery {
  metric: string;
  sort: "similarity" | "operation";
  descending: boolean;
  text: string;
  types: readonly string[];
  module: string;
  levels: readonly string[];
  start: number;
  stop: number;
  grouped: boolean;
  open: readonly string[];
}

export interface HeatMapQuery {
  rowAxis?: number;
  columnAxis?: number;
  index?: readonly number[];
  window?: readonly number[];
  rows: number;
  columns: number;
}

export interface Source {
  /** False in a report, which holds only part of what a server has. */
  readonly live: boolean;
  overview(limits: string): Promise<Overview>;
  rows(query: RowQuery, offset: number, limit: number): Promise<RowWindow>;
  place(query: RowQuery, row: number): Promise<Found>;
  unmatched(text: string, offset: number, limit: number): Promise<UnmatchedWindow>;
  states(metric: string): Promise<RowStates>;
  drift(metric: string): Promise<Drift>;
  row(row: number, metric: string): Promise<RowDetail>;
  heatmap(row: number, query: HeatMapQuery): Promise<HeatMap>;
  distribution(row: number): Promise<Distribution>;
  /** A group that is too large comes as the ops around a sync point, or as the first. */
  graph(side: Side, group: string, row?: number): Promise<Graph>;
  file(side: Side, file: string): Promise<SourceFile>;
}

/** An error of the server or of the report: a sentence and its cure. */
export class Failure extends Error {
  constructor(readonly problem: Problem) {
    super(problem.problem);
  }
}

/** Anything that was thrown, as a problem. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Failure) return error.problem;
  return { problem: String(error), cure: "try again" };
}
