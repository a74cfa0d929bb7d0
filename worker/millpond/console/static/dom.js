// Elements from data. Values only ever become text or attribute values, never markup.

/** Characters that control devices, or turn the direction of the text that follows them. */
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const LONGEST = 1000;

/** Return a text as it is shown: no tenant's text may change or hide what stands around it. */
export function shown(value) {
  const text = String(value);
  return (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text).replace(UNSAFE, "\ufffd");
}

/** Return an element; children are elements, text, or lists of them; null and false are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : shown(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(shown(child));
  }
}

/** Make the children of an element like these, and keep what stays: so the focus and the scroll position survive. */
export function show(element, ...children) {
  const wanted = element.cloneNode(false);
  append(wanted, children);
  morph(element, wanted);
}

function morph(old, wanted) {
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let next = old.firstChild;
  for (const child of [...wanted.childNodes]) {
    const key = child.dataset?.key;
    const match = key ? keyed.get(key) : next && !next.dataset?.key && next.nodeName === child.nodeName ? next : null;
    if (!match || match.nodeName !== child.nodeName) {
      old.insertBefore(child, next);
      continue;
    }
    if (match !== next) old.insertBefore(match, next);
    else next = next.nextSibling;
    if (match.nodeType === Node.TEXT_NODE) {
      if (match.data !== child.data) match.data = child.data;
      continue;
    }
    if ("keep" in match.dataset) continue; // another module owns its content
    for (const { name } of [...match.attributes]) if (!child.hasAttribute(name)) match.removeAttribute(name);
    for (const { name, value } of child.attributes) {
      if (match.getAttribute(name) !== value) match.setAttribute(name, value);
    }
    morph(match, child);
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}
