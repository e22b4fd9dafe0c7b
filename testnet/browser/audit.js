// Returns what is wrong with the page for people who use a keyboard, a screen reader, a phone, or see little contrast.
(() => {
  const wrong = [];
  const all = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility());
  const where = (e) => `${e.tagName.toLowerCase()}${e.id && `#${e.id}`} "${(e.textContent ?? '').trim().slice(0, 30)}"`;
  if (!document.documentElement.lang || !document.title) wrong.push('the page has no language or title');
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) wrong.push(`id ${id} is not unique`);
  for (const e of all('[aria-labelledby]')) {
    if (!document.getElementById(e.getAttribute('aria-labelledby'))) wrong.push(`${where(e)} is labelled by nothing`);
  }
  for (const e of all('button, a, input, select')) {
    const name = e.getAttribute('aria-label') || [...(e.labels ?? [])].map((l) => l.textContent).join('') || e.textContent;
    if (!name.trim()) wrong.push(`${where(e)} has no name`);
    const box = e.getBoundingClientRect();
    if (e.tagName === 'BUTTON' && (box.height < 24 || box.width < 24)) wrong.push(`${where(e)} is too small to hit`);
  }
  for (const e of all('svg')) {
    const named = e.getAttribute('role') === 'img' && e.getAttribute('aria-label');
    if (!named && e.getAttribute('aria-hidden') !== 'true') wrong.push(`a picture has neither a name nor aria-hidden: ${where(e)}`);
  }
  for (const e of all('table')) {
    if (e.rows.length && !e.querySelector('th[scope=col]')) wrong.push(`${where(e)} has no column headers`);
  }
  let level = 0;
  for (const e of all('h1, h2, h3, h4')) {
    if (+e.tagName[1] > level + 1) wrong.push(`${where(e)} skips a level of headings`);
    level = +e.tagName[1];
  }
  if (document.documentElement.scrollWidth > innerWidth) {
    wrong.push(`the page is ${document.documentElement.scrollWidth} pixels wide, the window ${innerWidth}`);
  }
  const parse = (text) => {
    const [r, g, b, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], alpha };
  };
  const luminance = (rgb) => rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const background = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.alpha === 1) return c.rgb;
    }
    return [255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !e.checkVisibility() || e.closest('.skip, noscript, script, option')) continue;
    const style = getComputedStyle(e);
    const colour = parse(e.namespaceURI.endsWith('svg') ? style.fill : style.color).rgb;
    const [light, dark] = [luminance(colour), luminance(background(e))].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) wrong.push(`${where(e)} has a contrast of ${ratio.toFixed(1)}`);
  }
  return wrong;
})()
