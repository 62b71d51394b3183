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

const SESSION_PATH = "/session";
const post = (body?: unknown): RequestInit => ({
  method: "POST",
  ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
});

export const session = (): Promise<SessionInfo> => ask(SESSION_PATH);
export const look = (path: string): Promise<Seen> => ask(`${SESSION_PATH}/look`, { path });
export const check = (side: Spec["target"]): Promise<Seen> => ask(`${SESSION_PATH}/check`, {}, post(side));
export const files = (path: string): Promise<Listing> => ask(`${SESSION_PATH}/files`, { path });
export const past = (): Promise<Past> => ask(`${SESSION_PATH}/past`);
export const command = (spec: Spec): Promise<Command> => ask(`${SESSION_PATH}/command`, {}, post(spec));
export const compare = (spec: Spec): Promise<Job> => ask(`${SESSION_PATH}/jobs`, {}, post(spec));
export const listJobs = (): Promise<JobList> => ask(`${SESSION_PATH}/jobs`);
export const cancel = (job: string): Promise<Job> => ask(`${SESSION_PATH}/jobs/${job}/cancel`, {}, post());
export const resumePast = (path: string): Promise<Job> => ask(`${SESSION_PATH}/past/resume`, {}, post({ path }));
export const soFar = (path: string): Promise<S["Name"]> => ask(`${SESSION_PATH}/so-far`, {}, post({ path }));
export const form = (): Promise<S["Form"]> => ask(`${SESSION_PATH}/form`);
/** Also from a page that is being left. */
export const fill = (fields: Record<string, string>): Promise<S["Form"]> => ask(`${SESSION_PATH}/form`, {}, { ...post(fields), keepalive: true });
export const resume = (job: string): Promise<Job> => ask(`${SESSION_PATH}/jobs/${job}/resume`, {}, post());

/** Listen to all jobs; a page in the background lets go of its connection. */
export function listen(onJobs: (jobs: JobList) => void, onLost: (isLost: boolean) => void): () => void {
  let stream: EventSource | null = null;
  const open = (): void => {
    if (stream || document.hidden) return;
    stream = new EventSource(`/api${SESSION_PATH}/events`);
    stream.addEventListener("jobs", (event) => onJobs(JSON.parse((event as MessageEvent<string>).data) as JobList));
    stream.onopen = () => onLost(false);
    stream.onerror = () => {
      onLost(true);
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
  const onVisibility = (): void => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", onVisibility);
  open();
  return () => {
    document.removeEventListener("visibilitychange", onVisibility);
    close();
  };
}
