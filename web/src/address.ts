// Writing the address no more often than browsers allow.

/** Chromium drops what is written more than 200 times in ten seconds, and says nothing; others throw. */
const SPARE = 120;
const REGAINED = 8 / 1000;
const LATER = 250;

let latest = "";
let spare = SPARE;
let before = 0;
let waiting = false;

/** Put this into the address: now, or in a moment where a key is held down. */
export function keep(hash: string): void {
  latest = hash;
  if (!waiting) write();
}

function write(): void {
  if (location.hash.slice(1) === latest) return;
  const now = performance.now();
  spare = Math.min(SPARE, spare + (now - before) * REGAINED);
  before = now;
  if (spare >= 1 && replaced()) {
    spare -= 1;
    return;
  }
  waiting = true;
  setTimeout(() => {
    waiting = false;
    write();
  }, LATER);
}

function replaced(): boolean {
  try {
    history.replaceState(null, "", `#${latest}`);
    return true;
  } catch {
    return false;
  }
}
