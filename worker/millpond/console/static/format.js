// Numbers and times for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A count: 1,204; from 100,000 on 120.4K. */
export const count = (value) => (value < 100000 ? whole.format(value) : short.format(value));

/** A count that may be unknown. */
export const known = (value) => (value === undefined || value === null ? "–" : count(value));

/** Records per second that may be unknown. */
export function rate(value) {
  if (value === undefined || value === null) return "–";
  return `${value > 0 && value < 9.95 ? value.toFixed(1) : count(value)}/s`;
}

/** Seconds in one unit: 0.4 s, 12 s, 5 min, 3 h, 2 days. */
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return "–";
  if (seconds < 10 && seconds > 0) return `${seconds < 0.1 ? "<0.1" : seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** A share of 0 to 1 as a percentage. */
export const percent = (value) => (value === undefined || value === null ? "–" : `${Math.round(value * 100)} %`);

/** How long ago a time was. */
export const ago = (ms, now) => (now - ms < 1500 ? "now" : `${duration((now - ms) / 1000)} ago`);

/** The time of a day, with the date if it was another day. */
export function clock(ms, now) {
  const time = new Date(ms);
  const today = new Date(now).toDateString() === time.toDateString();
  const hours = time.toLocaleTimeString("en-GB");
  return today ? hours : `${time.toLocaleDateString("en-CA")} ${hours}`;
}

/** A number with its noun: 1 task, 2 tasks. */
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
