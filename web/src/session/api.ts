// What the page of a session asks of its server.
import { ask } from "../api/live";
import type { components } from "../api/schema";

type S = components["schemas"];
export type SessionInfo = S["SessionInfo"];
export type Seen = S["PathPreview"];
export type Listing = S["FolderListing"];
export type Entry = S["FileEntry"];
export type OptionForm = S["OptionForm"];
export type Spec = S["SessionSpec"];
export type Command = S["Command"];
export type Job = S["JobState"];
export type JobList = S["JobList"];
export type Past = S["Past"];
export type PastComparison = S["PastComparison"];

const at = "/session";
const post = (body?: unknown): RequestInit => ({
  method: "POST",
  ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
});

export const session = (): Promise<SessionInfo> => ask(at);
export const look = (path: string): Promise<Seen> => ask(`${at}/look`, { path });
export const check = (side: Spec["target"]): Promise<Seen> => ask(`${at}/check`, {}, post(side));
export const files = (path: string): Promise<Listing> => ask(`${at}/files`, { path });
export const past = (): Promise<Past> => ask(`${at}/past`);
export const command = (spec: Spec): Promise<Command> => ask(`${at}/command`, {}, post(spec));
export const compare = (spec: Spec): Promise<Job> => ask(`${at}/jobs`, {}, post(spec));
export const listJobs = (): Promise<JobList> => ask(`${at}/jobs`);
export const cancel = (job: string): Promise<Job> => ask(`${at}/jobs/${job}/cancel`, {}, post());
export const resumePast = (path: string): Promise<Job> => ask(`${at}/past/resume`, {}, post({ path }));
export const soFar = (path: string): Promise<S["Name"]> => ask(`${at}/so-far`, {}, post({ path }));
export const form = (): Promise<S["Form"]> => ask(`${at}/form`);
/** Also from a page that is being left. */
export const fill = (fields: Record<string, string>): Promise<S["Form"]> => ask(`${at}/form`, {}, { ...post(fields), keepalive: true });
export const resume = (job: string): Promise<Job> => ask(`${at}/jobs/${job}/resume`, {}, post());

/** Listen to all jobs; a page in the background lets go of its connection. */
export function listen(told: (jobs: JobList) => void, lost: (gone: boolean) => void): () => void {
  let stream: EventSource | null = null;
  const open = (): void => {
    if (stream || document.hidden) return;
    stream = new EventSource(`/api${at}/events`);
    stream.addEventListener("jobs", (event) => told(JSON.parse((event as MessageEvent<string>).data) as JobList));
    stream.onopen = () => lost(false);
    stream.onerror = () => {
      lost(true);
      // The browser tries again by itself, but not after a refusal.
      if (stream?.readyState === EventSource.CLOSED) {
        close();
        setTimeout(open, 2000);
      }
    };
  };
  const close = (): void => {
    stream?.close();
    stream = null;
  };
  const seen = (): void => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}
