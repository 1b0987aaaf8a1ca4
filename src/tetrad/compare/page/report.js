// SPDX-License-Identifier: Apache-2.0
// The head of the page, the curves with their controls, the downloads, and the start.

const SMOOTHING = [0, 0.2, 0.5, 1, 2, 3, 5, 10, 20];  // percent of the run, by position of the slider
const MANY_EVENTS = 100;                               // per arm: with more, the marks would merge into a bar

// ---- Head

/** A long pattern of blocks shows its period at the beginning. */
const patternText = (pattern) => (pattern?.length > 16 ? `${pattern.slice(0, 12)}… (${pattern.length} blocks)` : pattern);
const dataText = (report) => joined(listOf(report.data).map((one) => short(one.source))) || null;
const sourceText = (one) => [isNumber(one.epochs) ? `${write.digits(one.epochs)} epochs of ${write.count(one.tokens)} tokens` : null,
                             isNumber(one.heldout_tokens) ? `${write.count(one.heldout_tokens)} held out` : null].filter(Boolean).join(', ');
const trunkText = ({trunk}) => (isNumber(trunk?.steps) ? `the first ${write.whole(trunk.steps)} in a trunk that all arms share` : null);
/** As one would type it. */
const commandText = (words) => listOf(words).map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`))
  .join(' ');
function factsOf(report) {
  const {model = {}, training = {}, hardware = {}} = report;
  const device = [hardware?.backend, hardware?.threads ? plural(hardware.threads, 'thread') : null].filter(Boolean).join(', ');
  const batch = isNumber(training?.batch) && isNumber(training?.sequence);
  const shape = [batch ? `${training.batch} × ${training.sequence} per step` : null,
                 isNumber(training?.steps) ? `${write.whole(training.steps)} steps` : null];
  return [
    ['Model', model?.name, [patternText(model?.pattern), isNumber(model?.vocab) ? `vocabulary ${write.whole(model.vocab)}` : null]],
    ['Parameters', write.count(model?.parameters), []],
    ['Data', dataText(report), listOf(report.data).map(sourceText)],
    ['Tokens per trial', write.count(training?.tokens), [...shape, trunkText(report)]],
    ['Schedule', training?.schedule, [isNumber(training?.lr) ? `peak rate ${write.digits(training.lr)}` : null]],
    ['Hardware', hardware?.device, [device]],
    ['Build', report.build, [dateText(report.created)]],
  ];
}
function trialNotice(report) {
  const endings = listOf(report.arms).flatMap((arm) => listOf(arm.trials).map((trial) => trial.ending));
  const open = endings.filter((ending) => ending === 'missing' || ending === 'running').length;
  if (report.complete !== false && open === 0) return null;
  const what = open > 0 ? `${open} of ${plural(endings.length, 'trial')} ${open === 1 ? 'is' : 'are'} missing or still running`
    : 'trials are missing';
  return html('p', {class: 'notice undecided', role: 'note'}, html('b', {}, 'Not complete: '),
              `${what}. What follows is what is known so far, and verdicts may change.`);
}
function fillHead(report) {
  const title = report.title || 'Comparison';
  document.title = `${title} · Tetrad`;
  document.getElementById('title').replaceChildren(nameElement(title));
  document.getElementById('summary').textContent = summaryText(report);
  const command = commandText(report.command);
  document.getElementById('command').replaceChildren(...(command ? [nameElement(command, 'code')] : []));
  document.getElementById('notices').replaceChildren(...[trialNotice(report)].filter(Boolean));
  document.getElementById('facts').replaceChildren(...factsOf(report).map(([name, value, more]) => {
    const details = more.filter(Boolean).map((detail) => html('span', {class: 'name detail'}, detail));
    return html('div', {}, html('dt', {}, name), html('dd', {}, value === null || value === undefined || value === ''
      ? unavailable() : nameElement(value), ...details));
  }));
}

// ---- Ranges of the axes

const quantile = (sorted, share) => sorted[Math.max(0, Math.min(sorted.length - 1, Math.round(share * (sorted.length - 1))))];
/** The values of all curves from x = low on, sorted. Of very many, every few: a range of an axis needs no more. */
function valuesFrom(curves, low) {
  const total = curves.reduce((sum, {xs}) => sum + xs.length, 0);
  const stride = Math.ceil(total / 20000);
  const values = [];
  for (const {xs, ys} of curves) {
    for (let i = xs.length - 1; i >= 0 && xs[i] >= low; i -= stride) if (!Number.isNaN(ys[i])) values.push(ys[i]);
  }
  return Float64Array.from(values).sort();
}
/** A trial that diverged must not decide how the others are seen, unless there are no others. */
function healthyFirst(curves) {
  const healthy = curves.filter((curve) => !curve.lost);
  return healthy.length > 0 ? healthy : curves;
}
function padded(low, high, share = 0.04) {
  const pad = share * (high - low) || Math.max(1e-3, Math.abs(high) * 0.01);
  return {low: low - pad, high: high + pad};
}
/** The steep beginning would press all else to the floor, and a loss above the untrained model's tells only that it is lost. */
function lossRange(curves, x, cutsBeginning) {
  const values = valuesFrom(curves, x.low);
  if (values.length === 0) return {low: 0, high: 1};
  const start = curves.reduce((most, {ys}) => Math.max(most, ys.find((value) => !Number.isNaN(value)) ?? -Infinity), -Infinity);
  const high = cutsBeginning ? quantile(values, 0.97) : values.at(-1);
  const range = padded(values[0], Math.max(Math.min(high, start), values[0]));
  return {...range, isCut: range.high < values.at(-1)};
}
function gapRange(curves, x, margin, cutsBeginning) {
  const values = valuesFrom(curves, cutsBeginning ? x.low + 0.05 * (x.high - x.low) : x.low);
  const room = 1.3 * margin;
  if (values.length === 0) return {low: -room, high: room};
  const limit = 12 * margin;
  return {low: Math.max(-limit, Math.min(-room, 1.1 * quantile(values, 0.01))),
          high: Math.min(limit, Math.max(room, 1.1 * quantile(values, 0.99)))};
}
function normRange(curves, x) {
  const values = valuesFrom(curves, x.low);
  const range = values.length === 0 ? {low: -1, high: 1} : padded(quantile(values, 0.003), quantile(values, 0.997), 0.06);
  const [low, high] = [10 ** range.low, 10 ** range.high];
  const wide = logTicks(low, high, 6);
  const ticks = wide.length > 2 ? wide : niceTicks(low, high, 4).values.filter((value) => value > 0);
  return {...range, ticks: {values: ticks.map(Math.log10), decimals: 0}};
}

// ---- Curves

class Curves {
  constructor(report) {
    this.report = report;
    this.arms = listOf(report.arms).map((arm, index) => ({
      index, name: arm.name, reference: arm.is_reference, runs: listOf(arm.trials).map(runFrom)}));
    this.reference = this.arms.find((arm) => arm.reference) ?? this.arms[0];
    const lasts = this.arms.flatMap((arm) => arm.runs.map((run) => run.train.xs.at(-1) ?? 0));
    this.tokens = Math.max(1, report.training?.tokens ?? 0, ...lasts);
    this.start = Math.min(report.trunk?.tokens ?? 0, 0.9 * this.tokens);  // what came before is the same in all arms
    this.tokensPerStep = isNumber(report.training?.steps) && report.training.steps > 0 ? this.tokens / report.training.steps : null;
    this.loss = new LineChart(document.getElementById('loss-chart'), 'Loss', 'Loss over training tokens.');
    this.gap = new LineChart(document.getElementById('gap-chart'), `Gap to ${short(this.reference?.name ?? 'the reference')}`,
                             'Gap of the loss to that of the reference, in percent.');
    this.norm = new LineChart(document.getElementById('norm-chart'), 'Gradient norm', 'Gradient norm over training tokens.');
    this.hidden = makeLegend(this.control('legend'), this.arms, () => this.draw());
    this.fillControls();
    this.draw();
  }

  control(id) { return document.getElementById(id); }
  fillControls() {
    const runs = this.arms.flatMap((arm) => arm.runs);
    const sources = [...new Set(runs.flatMap((run) => [...run.heldout.keys()]))];
    this.control('source').replaceChildren(html('option', {value: ''}, 'training data'), ...sources.map(
      (source, i) => html('option', {value: String(i)}, `held-out: ${short(source)}`)));
    this.sources = sources;
    const facets = [...new Set(runs.map((run) => run.facet))];
    const usual = facets.find((facet) => JSON.parse(facet)[0] === 1) ?? facets[0];
    this.control('facet-label').hidden = facets.length < 2;
    this.control('facet').replaceChildren(...facets.map((facet) => {
      const [factor, mix] = JSON.parse(facet);
      return html('option', {value: facet, selected: facet === usual}, facetText({lr_factor: factor, mix}));
    }));
    for (const id of ['source', 'facet', 'smoothing', 'range', 'log-x']) {
      this.control(id).addEventListener('input', () => this.schedule());
    }
  }
  /** A slider fires more often than the screen is drawn. */
  schedule() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = null;
      this.draw();
    });
  }

  readControls() {
    const {value} = this.control('source');
    const source = value === '' ? null : this.sources[Number(value)];
    const percent = SMOOTHING[Number(this.control('smoothing').value)];
    const text = percent === 0 ? 'none' : `${percent}\u00a0% of the run`;
    this.control('smoothing-value').textContent = text;
    this.control('smoothing').setAttribute('aria-valuetext', text);
    return {source, facet: this.control('facet').value, width: (percent / 100) * this.tokens,
            from: Number(this.control('range').value), log: this.control('log-x').checked};
  }
  /** The trials of an arm that have anything to draw, smoothed. Held-out losses are few and exact: they stay as they are. */
  curvesOf(arm, choice, kind) {
    return arm.runs.filter((run) => run.facet === choice.facet).flatMap((run) => {
      const curve = kind === 'norm' ? run.norm : choice.source === null ? run.train : run.heldout.get(choice.source);
      if (!curve || curve.ys.every(Number.isNaN)) return [];
      const smoothed = kind === 'loss' && choice.source !== null ? curve : smooth(curve, choice.width);
      return [{...smoothed, run, lost: run.ending === 'diverged'}];
    });
  }
  shown() { return this.arms.filter((arm) => !this.hidden.has(arm.index)); }
  axisOf(choice, source) {
    const curves = this.arms.flatMap((arm) => arm.runs.map((run) => (source === null ? run.train : run.heldout.get(source))));
    const firsts = curves.map((curve) => curve?.xs[0]).filter((first) => first > 0);
    const least = firsts.length ? Math.min(...firsts) : 1;
    const low = choice.from > 0 ? this.start + choice.from * (this.tokens - this.start)
      : choice.log ? Math.max(this.start, Math.min(0.95 * least, this.tokens / 2)) : this.start;
    return {low, high: this.tokens, log: choice.log, label: 'training tokens', format: (tokens) => `${write.whole(tokens)} tokens`};
  }

  draw() {
    const choice = this.readControls();
    const x = this.axisOf(choice, choice.source);
    this.drawGap(choice, x);
    this.drawLoss(choice, x);
    this.drawNorm(choice, this.axisOf(choice, null));
  }
  drawLoss(choice, x) {
    const series = this.shown().map((arm) => {
      const curves = this.curvesOf(arm, choice, 'loss');
      const endings = curves.filter((curve) => curve.lost).map(({xs, ys}) => {
        const last = ys.findLastIndex((value) => !Number.isNaN(value));
        return [xs[last], ys[last]];
      });
      return {index: arm.index, name: arm.name, ...average(curves), endings, events: this.eventsOf(arm, choice)};
    });
    const cutsBeginning = !choice.log && choice.from === 0 && choice.source === null;
    const range = lossRange(healthyFirst(series.flatMap((one) => one.trials)), x, cutsBeginning);
    this.loss.show({
      series, x, caption: this.lossCaption(choice, series, range.isCut), dots: choice.source !== null, empty: 'No loss is known here.',
      hidden: 'Every arm is hidden.',
      y: {...range, format: write.loss, tick: (value, decimals) => write.fixed(Math.max(1, decimals))(value)}});
  }
  lossCaption(choice, series, isCut) {
    const parts = [`nats per token${choice.source === null ? ' on the training data' : `, held out from ${short(choice.source)}`}`];
    if (series.some((one) => one.total > 1)) parts.push('thick: mean of the trials', `band: ${this.bandText(series)}`);
    if (series.some((one) => one.counts.some((count) => count < one.total))) parts.push('dotted: not all trials');
    if (isCut) parts.push('higher losses are cut off');
    if (series.some((one) => one.endings?.length)) parts.push('✕ diverged');
    if (series.some((one) => one.events?.length)) parts.push('▾ an event');
    return parts.join(' · ');
  }
  bandText(series) {
    return series.some((one) => one.total > 2) ? '± one standard deviation' : 'from lowest to highest';
  }
  eventsOf(arm, choice) {
    if (this.tokensPerStep === null) return [];
    const steps = arm.runs.filter((run) => run.facet === choice.facet).flatMap((run) => run.events.map((event) => event.step));
    return steps.filter(isNumber).slice(0, MANY_EVENTS).map((step) => step * this.tokensPerStep);
  }
  drawGap(choice, x) {
    const margin = isNumber(this.report.margin_percent) ? this.report.margin_percent : null;
    const references = new Map((this.reference ? this.curvesOf(this.reference, choice, 'loss') : [])
      .map((curve) => [curve.run.pair, curve]));
    const series = this.shown().filter((arm) => arm !== this.reference).map((arm) => {
      const gaps = this.curvesOf(arm, choice, 'loss').filter((curve) => references.has(curve.run.pair))
        .map((curve) => gapBetween(curve, references.get(curve.run.pair)));
      return {index: arm.index, name: arm.name, ...average(gaps)};
    });
    const range = gapRange(healthyFirst(series.flatMap((one) => one.trials)), x, margin ?? 1, !choice.log && choice.from === 0);
    const pairs = series.some((one) => one.total > 1) ? ` · thick: mean of the pairs · band: ${this.bandText(series)}` : '';
    this.gap.show({
      series, x, zero: true, height: 270, dots: choice.source !== null, empty: 'No pair of trials to compare.',
      caption: `percent of loss, trials paired by seed${pairs}`,
      strip: margin === null ? null : {low: -margin, high: margin, label: `margin ±${write.margin(margin)}`},
      y: {...range, format: write.gap, tick: (value, decimals) => `${signed(write.fixed(decimals))(value)}\u00a0%`}});
  }
  drawNorm(choice, x) {
    const series = this.shown().map((arm) => ({index: arm.index, name: arm.name, ...average(this.curvesOf(arm, choice, 'norm'))}));
    const text = (value) => write.digits(10 ** value);
    this.norm.show({
      series, x, height: 240, empty: 'No gradient norm is known here.', hidden: 'Every arm is hidden.',
      caption: `before clipping, geometric mean${series.some((one) => one.total > 1) ? ' of the trials' : ''}`,
      y: {...normRange(series.flatMap((one) => one.trials), x), format: text, tick: text}});
  }
}

// ---- Downloads

function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], {type}));
  const link = html('a', {href: address, download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
function fillDownloads(report) {
  const {body, note} = sectionOf('downloads');
  note('Every number on this page, made from what the page holds; nothing is fetched.');
  const files = [
    ['report.json', 'application/json', () => `${JSON.stringify(report, null, 1)}\n`],
    ['curves.csv', 'text/csv', () => curvesCsv(report)],
    ['table.csv', 'text/csv', () => tableCsv(report)],
    ['quantizer.csv', 'text/csv', () => quantizerCsv(report)],
  ];
  body.replaceChildren(...files.map(([name, type, make]) => {
    const button = html('button', {type: 'button', 'data-file': name}, `↓ ${name}`);
    button.addEventListener('click', () => save(name, type, make()));
    return button;
  }));
}

// ---- Start

const THEMES = {auto: '◐', light: '☀', dark: '☾'};
function startTheme() {
  const button = document.getElementById('theme');
  button.addEventListener('click', () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(document.documentElement.dataset.theme ?? 'auto') + 1) % names.length];
    if (next === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    button.textContent = `${THEMES[next]} ${next}`;
    button.setAttribute('aria-label', `Colour theme: ${next === 'auto' ? 'automatic' : next}`);
  });
}
/** On paper nothing can be opened; what was closed is closed again afterwards. */
function openForPrint() {
  let opened = [];
  window.addEventListener('beforeprint', () => {
    opened = [...document.querySelectorAll('details:not([open])')];
    for (const details of opened) details.open = true;
  });
  window.addEventListener('afterprint', () => {
    for (const details of opened) details.open = false;
  });
}
function readReport() {
  try {
    const report = JSON.parse(document.getElementById('report').textContent);
    if (report.format === 1) return report;
    document.getElementById('summary').textContent = `This page shows reports of format 1, not ${report.format}.`;
  } catch {
    document.getElementById('summary').textContent = 'This page carries no report: write it with "tetrad compare".';
  }
  return null;
}
function startPage() {
  startTheme();
  openForPrint();
  window.addEventListener('scroll', () => tooltip.hide(), {passive: true});
  const report = readReport();
  if (!report) return;
  const shown = withoutReversals(report);
  fillHead(shown);
  for (const fill of [fillVerdicts, fillStability, fillSources, fillQuantizer, fillGradients, fillCost, fillRecovery, fillChecks,
                      fillLock]) fill(shown);
  fillDownloads(report);
  new Curves(shown);
}
startPage();
