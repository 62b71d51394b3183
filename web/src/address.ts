// Writing the address no more often than browsers allow, and what Back leads to.

/** Chromium drops what is written more than 200 times in ten seconds, and says nothing; others throw. */
const SPARE = 120;
const REGAINED = 8 / 1000;
const LATER = 250;
/** Choices that follow each other so fast, as with a key held down, are one entry of the history. */
const TOGETHER = 700;

let latest = "";
let spare = SPARE;
let before = 0;
let waiting = false;
/** What was looked at last, and when that was chosen. */
let looked: string | null = null;
let chosen = -Infinity;
/** Whether what is written next is an entry of its own. */
let entry = false;

/** Put this into the address: now, or in a moment where a key is held down. `lookedAtName` names what is looked at:
 *  from something else than before, Back leads to what was looked at before. */
export function keep(hash: string, lookedAtName: string): void {
  latest = hash;
  if (looked === null) looked = lookedAtName;
  else if (lookedAtName !== looked) {
    const now = performance.now();
    entry ||= now - chosen > TOGETHER;
    [looked, chosen] = [lookedAtName, now];
  }
  if (!waiting) write();
}

/** What is written next belongs to the entry that the browser is at, and what was still to be written is dropped. */
export function settle(): void {
  latest = location.hash.slice(1);
  [looked, chosen, entry] = [null, -Infinity, false];
}

function write(): void {
  if (location.hash.slice(1) === latest) {
    entry = false;
    return;
  }
  const now = performance.now();
  spare = Math.min(SPARE, spare + (now - before) * REGAINED);
  before = now;
  if (spare >= 1 && written()) {
    spare -= 1;
    entry = false;
    return;
  }
  waiting = true;
  setTimeout(() => {
    waiting = false;
    write();
  }, LATER);
}

function written(): boolean {
  try {
    // Inside of another page, Back belongs to that one.
    if (entry && parent === window) history.pushState(null, "", `#${latest}`);
    else history.replaceState(null, "", `#${latest}`);
    return true;
  } catch {
    return false;
  }
}
