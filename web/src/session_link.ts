// Whether the server has a page of all comparisons to go back to: a session has, `syncpoint view` has not.
import { signal } from "@preact/signals";
import { serverLostSince } from "./api/live";
import { session } from "./session/api";
import { localStore } from "./state";

export const inSession = signal(false);

/** The page of a session was here: the comparisons that are opened from it lead back. */
export function enterSession(): void {
  inSession.value = true;
  localStore("session", "1");
}

/** Another server may have had this address before, so that it is asked. One that never was a session is
 *  not: it would only refuse. */
export function recallSession(): void {
  if (localStore("session") !== "1") return;
  inSession.value = true;
  session().catch(() => {
    if (serverLostSince.peek() !== null) return;
    inSession.value = false;
    localStore("session", "0");
  });
}
