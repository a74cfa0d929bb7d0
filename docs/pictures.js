// What is wrong with the page that is shown, as a list of sentences. The last value is the result.
(() => {
  const found = new Set();
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth + 1) found.add(`the page is ${root.scrollWidth} px wide`);
  for (const image of document.images)
    if (image.offsetParent && image.naturalWidth === 0) found.add(`the picture ${image.getAttribute("src")} does not load`);

  // Text that a box cuts off: it neither wraps nor scrolls.
  for (const each of document.querySelectorAll("article *")) {
    const style = getComputedStyle(each);
    if (style.overflowX === "hidden" && each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 1)
      found.add(`text is cut off in <${each.localName} class="${each.className}">`);
  }

  // Contrast, by WCAG 2.1's relative luminance: 4.5 for text.
  const parse = (text) => (text.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const luminance = ([r, g, b]) => {
    const part = (v) => ((v /= 255), v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = parse(getComputedStyle(each).backgroundColor);
      if ((color[3] ?? 1) > 0.99) return color;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.querySelector("article") ?? document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.offsetParent || element.closest(".headerlink, .copybtn")) continue;
    const style = getComputedStyle(element);
    const [front, back] = [luminance(parse(style.color)), luminance(behind(element))];
    const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (contrast < 4.5) found.add(`contrast ${contrast.toFixed(1)} in <${element.localName} class="${element.className}">`);
  }
  return [...found];
})();
