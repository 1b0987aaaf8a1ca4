// SPDX-License-Identifier: Apache-2.0
// What stands in the sections, except for the curves. Each function fills one section from the report.

function sectionOf(id) {
  const section = document.getElementById(id);
  const note = section.querySelector('[data-note]');
  return {
    body: section.querySelector('[data-body]'),
    note(...parts) { note.replaceChildren(...parts); },
    /** What was not run is not spoken of. */
    leaveOut() {
      section.remove();
      document.querySelector(`nav a[href="#${id}"]`).parentElement.remove();
    },
  };
}
const unavailable = () => html('span', {class: 'none'}, 'unavailable');
const armName = (index, arm) => html('span', {class: 'arm'}, swatch(index), nameElement(arm.name));
const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
const joined = (words) => (words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`);

/** A button for each arm that hides or shows it; with shift, it alone stays. Gives the set of hidden indices, kept up to date. */
function makeLegend(host, arms, redraw) {
  const hidden = new Set();
  const toggle = (index, only) => {
    if (only) arms.forEach((arm) => (arm.index === index ? hidden.delete(arm.index) : hidden.add(arm.index)));
    else if (!hidden.delete(index)) hidden.add(index);
    arms.forEach((arm, i) => host.children[i].setAttribute('aria-pressed', String(!hidden.has(arm.index))));
    redraw();
  };
  host.replaceChildren(...arms.map((arm) => {
    const title = 'Click to hide or show; with shift, only this one';
    const button = html('button', {type: 'button', 'aria-pressed': 'true', title}, swatch(arm.index), nameElement(arm.name));
    button.addEventListener('click', (event) => toggle(arm.index, event.shiftKey));
    return button;
  }));
  return hidden;
}

/** columns: {title, number?, kind?}; a row is {head?, cells, best?}; a cell is a node, a text, or null for what is unknown. */
function dataTable(caption, columns, groups) {
  const head = html('tr', {}, ...columns.map((column) => html(
    'th', {scope: 'col', class: column.number ? 'number' : null}, column.title)));
  const bodies = groups.map((rows) => html('tbody', {class: 'group'}, ...rows.map((row) => html('tr', {}, ...row.cells.map(
    (cell, i) => {
      if (i < (row.heads ?? 1)) return html('th', {scope: 'row', ...row.span && i === 0 ? {rowspan: row.span} : {}}, cell ?? '');
      const column = columns[i + columns.length - row.cells.length];
      const classes = [column.number ? 'number' : column.kind, row.best?.has(i) ? 'best' : null].filter(Boolean).join(' ');
      return html('td', {class: classes || null}, cell ?? unavailable());
    })))));
  const table = html('table', {class: columns.length < 5 ? 'compact' : null},
                     html('caption', {}, caption), html('thead', {}, head), ...bodies);
  return html('div', {class: 'wide', tabindex: 0, role: 'region', 'aria-label': caption}, table);
}

// ---- Verdicts

const VERDICTS = {
  reference: ['◆', 'Reference'],
  equivalent: ['✓', 'Equivalent'],
  better: ['▲', 'Better'],
  worse: ['▼', 'Worse'],
  diverged: ['✕', 'Diverged'],
  undecided: ['?', 'Undecided'],
};
const kindOf = (arm) => (Object.hasOwn(VERDICTS, arm.verdict?.kind) ? arm.verdict.kind : 'undecided');

const levelOf = (report) => {
  const alpha = report.looks?.alpha ?? report.alpha;
  return isNumber(alpha) ? `${Number((100 * (1 - alpha)).toFixed(2))}\u00a0%` : null;
};

/** All arms on one axis: wide enough for the margin and for what lies a few margins away. */
function forestReach(report) {
  const margin = isNumber(report.margin_percent) ? report.margin_percent : 1;
  const ends = listOf(report.arms).flatMap((arm) => [arm.verdict?.gap_percent, ...listOf(arm.verdict?.interval_percent)]);
  const farthest = Math.max(0, ...ends.filter(isNumber).map(Math.abs));
  return Math.max(1.5 * margin, Math.min(3 * margin, 1.1 * farthest));
}
const forestPlace = (value, reach) => `${(50 + (50 * Math.max(-reach, Math.min(reach, value))) / reach).toFixed(2)}%`;

/** The gap and its interval beside the margin; arrows where they leave the axis. */
function forestPlot(verdict, margin, reach) {
  const plot = html('div', {class: 'forest', role: 'img', 'aria-label': [
    `gap ${write.gap(verdict.gap_percent)}`, write.interval(verdict.interval_percent)].filter(Boolean).join(', interval ')});
  const place = (kind, value) => plot.append(html('span', {class: kind, style: `left:${forestPlace(value, reach)}`}));
  const span = (kind, low, high) => plot.append(html('span', {
    class: kind, style: `left:${forestPlace(low, reach)};right:calc(100% - ${forestPlace(high, reach)})`}));
  if (isNumber(margin)) span('strip', -margin, margin);
  place('zero', 0);
  const [low, high] = listOf(verdict.interval_percent);
  const ends = isNumber(low) && isNumber(high) ? [low, high] : [];
  if (ends.length) span('interval', low, high);
  for (const end of ends) if (Math.abs(end) <= reach) place('cap', end);
  if (Math.abs(verdict.gap_percent) <= reach) place(ends.length ? 'dot' : 'dot alone', verdict.gap_percent);
  const reached = [...ends, verdict.gap_percent];
  if (Math.min(...reached) < -reach) plot.append(html('span', {class: 'beyond left'}, '◀'));
  if (Math.max(...reached) > reach) plot.append(html('span', {class: 'beyond right'}, '▶'));
  return plot;
}
function forestAxis(margin, reach) {
  const ticks = [[0, '0'], ...(isNumber(margin) ? [[-margin, `−${write.margin(margin)}`], [margin, `+${write.margin(margin)}`]] : [])];
  return html('div', {class: 'row axis', 'aria-hidden': 'true'}, html('div'), html('div', {class: 'forest'}, ...ticks.map(
    ([value, text]) => html('span', {class: 'tick', style: `left:${forestPlace(value, reach)}`}, text))));
}

function statistics(arm, report) {
  const {verdict} = arm;
  const rows = [
    ['pairs of trials', write.whole(verdict.pairs)],
    ['mean gap', write.gap(verdict.gap_percent)],
    ['mean gap in nats per token', write.gapNats(verdict.gap_nats)],
    [`${levelOf(report) ?? ''} interval of the gap`.trim(), write.interval(verdict.interval_percent)],
    ['standard deviation of one pair', write.percent(verdict.sd_percent)],
    ['degrees of freedom, pooled over arms', write.digits(verdict.freedom)],
    ['p for a gap of zero', write.probability(verdict.p_zero)],
    ['p for equivalence', write.probability(verdict.p_equivalent)],
    ['p for worse than the margin', write.probability(verdict.p_worse)],
  ];
  return html('details', {}, html('summary', {}, 'Statistics'), html('dl', {class: 'statistics'}, ...rows.flatMap(
    ([name, value]) => [html('dt', {}, name), html('dd', {}, value ?? unavailable())])));
}

function verdictRow(arm, index, report, reach) {
  const kind = kindOf(arm);
  const [symbol, word] = VERDICTS[kind];
  const verdict = arm.verdict ?? {};
  // The gap of an arm that diverged would be that of its survivors: it stays among the statistics.
  const judges = kind !== 'reference' && kind !== 'diverged';
  const numbers = (kind === 'reference'
    ? [[write.loss(heldoutLoss(arm)), 'held-out loss'], [write.count(arm.cost?.tokens_per_s), 'tokens/s']]
    : [[write.ratio(arm.cost?.speed), 'speed'], [write.ratio(timeToReferenceLoss(arm)), 'time to equal loss']])
    .filter(([value]) => value !== null);
  const said = kind === 'reference' ? null : verdict.text?.replaceAll(' %', '\u00a0%').replace(/(?<=^|[ (])-(?=\d)/g, '−');
  return html(
    'article', {class: `card row ${kind}`, 'data-arm': index},
    html('div', {},
         html('header', {}, html('h3', {}, armName(index, arm)), html('span', {class: 'badge'}, `${symbol} ${word}`)),
         html('p', {class: 'description name'}, arm.description ?? ''),
         said ? html('p', {class: 'name'}, said) : null,
         numbers.length ? html('dl', {class: 'key'}, ...numbers.map(
           ([value, name]) => html('div', {}, html('dt', {}, name), html('dd', {}, value)))) : null,
         kind === 'reference' || !arm.verdict ? null : statistics(arm, report)),
    isNumber(verdict.gap_percent) && judges ? forestPlot(verdict, report.margin_percent, reach) : null);
}

/** Gaps of something that every arm has several of: windows, learning rates and mixes. */
function gapTable(caption, head, report, partsOf, titleOf) {
  const arms = listOf(report.arms);
  const titles = [...new Set(arms.flatMap((arm) => listOf(partsOf(arm)).map(titleOf)))];
  const groups = titles.map((title) => arms.map((arm, index) => [arm, index, listOf(partsOf(arm)).find((part) => titleOf(part) === title)])
    .filter(([arm, , part]) => part && !arm.is_reference).map(([arm, index, part], i, all) => ({
      heads: i === 0 ? 2 : 1, span: i === 0 ? all.length : null,
      cells: [...(i === 0 ? [nameElement(title)] : []), armName(index, arm), write.gap(part.gap_percent),
              write.interval(part.interval_percent)]})));
  return dataTable(caption, [{title: head}, {title: 'arm'}, {title: 'gap', number: true}, {title: 'interval', number: true}],
                   groups.filter((rows) => rows.length > 0));
}
const facetText = ({lr_factor: factor, mix}) => `rate × ${factor}${mix ? `, ${mix}` : ''}`;

function fillVerdicts(report) {
  const {body, note} = sectionOf('verdicts');
  const arms = listOf(report.arms);
  const reach = forestReach(report);
  const [margin, level] = [write.margin(report.margin_percent), levelOf(report)];
  const {planned, before} = report.looks ?? {};
  note([
    report.primary ? `Compared: ${report.primary}, as was stated before the runs.` : null,
    level ? `With a probability of ${level} all intervals hold at once; one without zero in it shows a difference.` : null,
    margin ? `Equivalent means that the whole interval lies within the margin of ±${margin}, also stated before.` : null,
    listOf(before).length >= planned ? `The verdicts were seen ${plural(listOf(before).length, 'time')} before trials were added, ` +
      `and ${plural(planned, 'look')} had been planned: the probability of any wrong verdict is up to ` +
      `${write.share(report.looks.alpha_spent)}.` : null,
  ].filter(Boolean).join(' '));
  body.replaceChildren(...arms.map((arm, index) => verdictRow(arm, index, report, reach)));
  if (body.querySelector('.forest')) body.append(forestAxis(report.margin_percent, reach));
  const others = arms.filter((arm) => !arm.is_reference);
  if (others.some((arm) => listOf(arm.windows).length > 1)) {
    body.after(gapTable('All windows, of which the first decides', 'window', report, (arm) => arm.windows, (part) => part.title));
  }
  if (others.some((arm) => listOf(arm.facets).length > 1)) {
    body.after(gapTable('Each learning rate and mix by itself: they are not repetitions of each other', 'trials', report,
                        (arm) => arm.facets, facetText));
  }
}

/** One sentence for the top of the page. */
function summaryText(report) {
  const others = listOf(report.arms).filter((arm) => kindOf(arm) !== 'reference');
  if (others.length === 0) return 'Only the reference is here: nothing was compared with it.';
  const [reference, margin] = [short(report.reference), write.margin(report.margin_percent) ?? 'a margin'];
  const phrases = {
    equivalent: [`is equivalent to ${reference}, within ${margin}`, `are equivalent to ${reference}, within ${margin}`],
    better: [`is better than ${reference}`, `are better than ${reference}`],
    worse: [`is worse than ${reference}`, `are worse than ${reference}`], diverged: ['diverged', 'diverged'],
    undecided: [`is undecided: within ${margin} of ${reference} or not`, `are undecided: within ${margin} of ${reference} or not`],
  };
  const parts = Object.entries(phrases).flatMap(([kind, [one, many]]) => {
    const names = others.filter((arm) => kindOf(arm) === kind).map((arm) => short(arm.name));
    if (names.length === 0) return [];
    const subject = names.length > 3 ? `${names.length} arms` : joined(names);
    return [`${subject} ${names.length === 1 ? one : many}`];
  });
  return `${parts.join('; ')}.`;
}

// ---- Stability

function boundText({count, of, bound}, alpha) {
  if (!of) return 'No trial has ended yet, so nothing is known.';
  const seen = of === 1 ? `The only trial ${count === 0 ? 'did not diverge' : 'diverged'}.`
    : `${count === 0 ? 'None' : count} of ${of} trials diverged.`;
  if (!isNumber(bound)) return seen;
  return bound >= 0.9995 ? `${seen} That sets no limit to how often such a training diverges.`
    : `${seen} At ${write.share(1 - alpha)} confidence, at most ${write.share(Number(bound.toPrecision(2)))} of such trainings would.`;
}
function fillStability(report) {
  const {body, note} = sectionOf('stability');
  const arms = listOf(report.arms);
  note('Few trials cannot show that a training never diverges; the bound says how much they leave open.');
  const rows = arms.map((arm, index) => ({cells: [
    armName(index, arm), boundText(arm.divergences ?? {}, report.alpha ?? 0.05), write.whole(arm.spikes?.count),
    write.digits(arm.spikes?.per_million_tokens), write.whole(arm.skipped_steps)]}));
  body.replaceChildren(dataTable('Divergences, spikes of the loss and skipped steps', [
    {title: 'arm'}, {title: 'divergence', kind: 'words'}, {title: 'spikes', number: true},
    {title: 'per million tokens', number: true}, {title: 'skipped steps', number: true}], [rows]));
  const events = arms.flatMap((arm, index) => listOf(arm.trials).flatMap((trial) => listOf(trial.events).map(
    (event) => ({cells: [armName(index, arm), write.whole(trial.seed), write.whole(event.step), nameElement(event.what),
                         nameElement(event.where || '–'), nameElement(event.action || '–')]}))));
  if (events.length === 0) return;
  const shown = events.slice(0, 500);
  const caption = shown.length < events.length ? `The first ${shown.length} of ${events.length} events; report.json has all`
    : 'Events in the order of arms and trials';
  const table = dataTable(caption, [
    {title: 'arm'}, {title: 'seed', number: true}, {title: 'step', number: true}, {title: 'what'}, {title: 'where'},
    {title: 'action'}], [shown]);
  table.classList.add('tall');
  body.append(html('details', {}, html('summary', {}, plural(events.length, 'event')), table));
}

// ---- Held-out losses

function fillSources(report) {
  const {body, note, leaveOut} = sectionOf('sources');
  const arms = listOf(report.arms);
  const sources = [...new Set(arms.flatMap((arm) => listOf(arm.heldout).map((held) => held.source)))];
  if (sources.length === 0) return leaveOut();
  const anyInBf16 = arms.some((arm) => listOf(arm.heldout).some((held) => isNumber(held.bf16_loss)));
  const inBf16 = (held) => (anyInBf16 ? [isNumber(held.bf16_loss) ? write.loss(held.bf16_loss) : '–'] : []);
  const groups = sources.map((source) => {
    const present = arms.map((arm, index) => [arm, index, listOf(arm.heldout).find((held) => held.source === source)])
      .filter(([, , held]) => held);
    return present.map(([arm, index, held], i) => ({
      heads: i === 0 ? 2 : 1, span: i === 0 ? present.length : null,
      cells: [...(i === 0 ? [nameElement(source)] : []), armName(index, arm), write.loss(held.loss), ...inBf16(held),
              ...(arm.is_reference ? ['–', '–', '–'] : [write.gap(held.gap_percent), write.interval(held.interval_percent),
                                                         write.gapNats(held.gap_nats)]),
              write.fixed(4)(held.bits_per_byte), held.excess_nats === null ? '–' : write.gapNats(held.excess_nats)]}));
  });
  note('Nats per token at the end of training, mean over the trials. Excess nats are over the true entropy, for sources where ' +
       'it is known; a dash stands where there is nothing to state.' +
       (anyInBf16 ? ' Losses in BF16 are those of the same weights with a forward pass that quantizes nothing.' : ''));
  body.replaceChildren(dataTable('Loss by source and arm', [
    {title: 'source'}, {title: 'arm'}, {title: 'loss', number: true}, ...(anyInBf16 ? [{title: 'in BF16', number: true}] : []),
    {title: 'gap', number: true}, {title: 'interval', number: true}, {title: 'gap in nats', number: true},
    {title: 'bits per byte', number: true}, {title: 'excess nats', number: true}], groups));
}

// ---- Quantizers

const METRICS = [
  {key: 'sqnr_db', name: 'signal to noise', format: (value) => `${value.toFixed(1)} dB`, lowIsBad: true,
   note: 'Signal to quantization noise: low is bad.'},
  {key: 'underflow', name: 'underflow', format: write.share, note: 'Share of values other than zero that became zero.'},
  {key: 'saturated', name: 'saturated', format: write.share, note: 'Share of values cut off at the largest number.'},
  {key: 'zero_scale_blocks', name: 'zero scales', format: write.share, note: 'Share of blocks whose scale became zero.'},
];
const cellKey = (layer, operand) => JSON.stringify([layer, operand]);

function metricRange(metric, cells) {
  const values = cells.map((cell) => cell[metric.key]).filter(isNumber);
  if (values.length === 0) return null;
  const low = values.reduce((least, value) => Math.min(least, value), metric.lowIsBad ? Infinity : 0);
  const high = values.reduce((most, value) => Math.max(most, value), -Infinity);
  return {low, high, share(cell) {
    const value = cell[metric.key];
    if (!isNumber(value)) return null;
    const share = high > low ? (value - low) / (high - low) : 0;
    return metric.lowIsBad && high > low ? 1 - share : share;
  }};
}
function worstText(metric, maps) {
  const all = maps.flatMap(({arm, cells}) => [...cells.values()].filter((cell) => isNumber(cell[metric.key]))
    .map((cell) => ({arm, cell})));
  all.sort((a, b) => (metric.lowIsBad ? 1 : -1) * (a.cell[metric.key] - b.cell[metric.key]));
  const {arm, cell} = all[0];
  if (!metric.lowIsBad && cell[metric.key] === 0) return 'It is zero everywhere.';
  return `Worst: ${metric.format(cell[metric.key])} in ${short(arm.name)}, ${short(cell.layer)}, ${short(cell.operand)}.`;
}

function quantizerMap(arm, index, body) {
  const list = arm.quantizer.cells;
  const cells = new Map(list.map((cell) => [cellKey(cell.layer, cell.operand), cell]));
  const figure = html('figure', {}, html('figcaption', {}, html('b', {}, armName(index, arm)),
                                         `step ${write.whole(arm.quantizer.step) ?? 'unknown'}`));
  const host = html('div', {class: 'wide'});
  figure.append(host);
  body.append(figure);
  const map = new HeatMap(host, {
    cells, keyOf: cellKey, label: `Quantizer map of ${arm.name}. Arrow keys move from cell to cell.`,
    layers: [...new Set(list.map((cell) => String(cell.layer)))], operands: [...new Set(list.map((cell) => String(cell.operand)))],
    describe: (cell) => (cell ? [...METRICS.map((metric) => ({
      name: metric.name, value: isNumber(cell[metric.key]) ? metric.format(cell[metric.key]) : 'unavailable'})),
      {name: 'largest value', value: write.digits(cell.amax) ?? 'unavailable'}] : [{name: 'not quantized', value: ''}]),
  });
  return {arm, cells, map};
}
function fillQuantizer(report) {
  const {body, note, leaveOut} = sectionOf('quantizer');
  const arms = listOf(report.arms).map((arm, index) => [arm, index]).filter(([arm]) => listOf(arm.quantizer?.cells).length > 0);
  if (arms.length === 0) return leaveOut();
  const scale = html('div', {class: 'scale', 'aria-live': 'polite'});
  const controls = html('div', {class: 'controls', role: 'radiogroup', 'aria-label': 'What the maps show'});
  body.append(controls, scale);
  const maps = arms.map(([arm, index]) => quantizerMap(arm, index, body));
  const cells = maps.flatMap((map) => [...map.cells.values()]);
  const show = (metric) => {
    const range = metricRange(metric, cells);
    note(metric.note, ' One scale serves all arms. Arms without a map keep everything in high precision.');
    scale.replaceChildren(...(range === null ? [unavailable()] : [
      metric.format(metric.lowIsBad ? range.high : range.low), html('span', {class: 'ramp', 'aria-hidden': 'true'}),
      metric.format(metric.lowIsBad ? range.low : range.high), html('span', {class: 'name'}, worstText(metric, maps))]));
    for (const {map} of maps) map.show({share: range?.share ?? (() => null)});
  };
  METRICS.forEach((metric, i) => {
    const input = html('input', {type: 'radio', name: 'metric', value: metric.key, checked: i === 0});
    input.addEventListener('change', () => show(metric));
    controls.append(html('label', {}, input, ` ${metric.name}`));
  });
  show(METRICS[0]);
}

// ---- Gradients

/** As many names below the axis as there is room for; of many layers, the first of each block. */
function layerTicks(layers, width) {
  const longest = Math.max(...layers.map((layer) => Math.min(layer.length, 20)));
  const room = Math.max(1, Math.floor((width - 70) / (longest * 6.4 + 10)));
  const every = Math.ceil(layers.length / room);
  return layers.map((layer, i) => [i, layer.length > 20 ? `…${layer.slice(-19)}` : layer]).filter(([i]) => i % every === 0);
}
/** What the forward pass of each arm loses, paired by token. */
function lossesOnSameWeights(arms) {
  const rows = arms.map(([arm, index]) => ({cells: [
    armName(index, arm), write.loss(arm.fixed_weights.loss),
    arm.is_reference ? '–' : write.gapNats(arm.fixed_weights.difference_nats) +
      ` ± ${write.loss(arm.fixed_weights.standard_error)}${arm.fixed_weights.noise ? ' (noise)' : ''}`,
    write.count(arm.fixed_weights.sequences)]}));
  return dataTable('Loss of held-out tokens', [
    {title: 'arm'}, {title: 'loss', number: true}, {title: 'difference, nats', number: true}, {title: 'sequences', number: true}],
  [rows]);
}
function fillGradients(report) {
  const {body, note, leaveOut} = sectionOf('gradients');
  const all = listOf(report.arms).map((arm, index) => [arm, index]);
  const evaluated = all.filter(([arm]) => arm.fixed_weights);
  const arms = all.filter(([arm]) => arm.gradient);
  if (arms.length === 0 && evaluated.length === 0) return leaveOut();
  note(`Each arm's precision on the same weights and the same tokens as ${short(report.reference)}. Losses are paired by token: ` +
       'the difference is what the forward pass loses before any training, with its standard error. Of gradients, a cosine of 1 ' +
       'is the same direction, a norm ratio of 1 the same size.');
  if (evaluated.length > 0) body.append(lossesOnSameWeights(evaluated));
  if (arms.length === 0) return;
  const rows = arms.map(([arm, index]) => ({cells: [
    armName(index, arm), write.fixed(4)(arm.gradient.cosine), write.fixed(3)(arm.gradient.norm_ratio)]}));
  body.append(dataTable('The whole gradient', [
    {title: 'arm'}, {title: 'cosine', number: true}, {title: 'norm ratio', number: true}], [rows]));
  const layers = [...new Set(arms.flatMap(([arm]) => listOf(arm.gradient.layers).map((layer) => String(layer.name))))];
  if (layers.length === 0) return;
  const legend = html('div', {class: 'legend', role: 'group', 'aria-label': 'Arms: press to hide or show'});
  const figure = html('figure', {id: 'cosine-chart'});
  body.append(legend, figure);
  const series = arms.map(([arm, index]) => {
    const values = new Map(listOf(arm.gradient.layers).map((layer) => [String(layer.name), layer.cosine]));
    return {index, name: arm.name, ...average([curveFrom(layers.map((_, i) => i),
                                                         layers.map((name) => values.get(name)))])};
  });
  const known = series.flatMap((one) => Array.from(one.mean)).filter((value) => !Number.isNaN(value));
  const least = known.reduce((low, value) => Math.min(low, value), 1);
  const chart = new LineChart(figure, 'Cosine by layer', 'Cosine of the gradient with that of the reference, by layer.');
  const draw = () => chart.show({
    series: series.filter((one) => !hidden.has(one.index)), dots: true, height: 260, caption: 'in the order of the model',
    empty: 'No cosine was measured.', hidden: 'Every arm is hidden.',
    x: {low: -0.5, high: layers.length - 0.5, log: false, label: 'layer', format: (i) => layers[i],
        ticks: (width) => layerTicks(layers, width)},
    y: {low: least - 0.08 * (1 - least) - 1e-6, high: 1 + 0.05 * (1 - least) + 1e-6, format: write.fixed(4),
        tick: (value, decimals) => write.fixed(decimals)(value)},
  });
  const hidden = makeLegend(legend, series, draw);
  draw();
}

// ---- Cost

const PRICE = 'price per million tokens';
const COSTS = [
  {title: 'tokens/s', get: (cost) => cost.tokens_per_s, write: write.count, best: 'high'},
  {title: 'speed', get: (cost) => cost.speed, write: write.ratio, best: 'high'},
  {title: 'TFLOP/s', get: (cost) => cost.tflops, write: write.digits, best: 'high'},
  {title: 'FLOP utilisation', get: (cost) => cost.utilisation, write: write.share, best: 'high'},
  {title: 'device busy', get: (cost) => cost.device_busy, write: write.share, best: 'high'},
  {title: 'memory', get: (cost) => cost.memory_bytes, write: write.bytes, best: 'low'},
  {title: 'checkpoint time', get: (cost) => cost.checkpoint_seconds, write: write.seconds, best: 'low'},
  {title: 'checkpoint size', get: (cost) => cost.checkpoint_bytes, write: write.bytes, best: 'low'},
  {title: 'J/token', get: (cost) => cost.joules_per_token, write: write.digits, best: 'low'},
  {title: PRICE, get: (cost) => cost.price_per_million_tokens, write: write.digits, best: 'low'},
  {title: 'tokens to equal loss', get: (cost) => cost.tokens_to_reference_loss, write: write.ratio, best: 'low'},
  {title: 'time to equal loss', get: (cost, arm) => timeToReferenceLoss(arm), write: write.ratio, best: 'low'},
  {title: 'energy to equal loss', get: (cost, arm, reference) => energyToReferenceLoss(arm, reference), write: write.ratio,
   best: 'low'},
];
/** What each missing column needs, in the words of a sentence; a price is no measurement. */
function missingText(titles) {
  const measured = titles.filter((title) => title !== PRICE);
  return [measured.length ? `Not measured on this machine: ${joined(measured)}.` : null,
          measured.length < titles.length ? 'No price of the machine was given (--price).' : null];
}
/** Marked only where the arms differ: the best of equals is nothing. */
function bestOf(values, direction) {
  const known = values.filter(isNumber);
  if (new Set(known).size < 2) return null;
  return known.reduce((best, value) => (direction === 'high' ? Math.max(best, value) : Math.min(best, value)));
}
function fillCost(report) {
  const {body, note, leaveOut} = sectionOf('cost');
  const arms = listOf(report.arms);
  const reference = arms.find((arm) => arm.is_reference) ?? arms[0];
  const columns = COSTS.map((column) => ({
    ...column, values: arms.map((arm) => column.get(arm.cost ?? {}, arm, reference) ?? null)}));
  const known = columns.filter((column) => column.values.some(isNumber));
  if (known.length === 0) return leaveOut();
  const missing = columns.filter((column) => !column.values.some(isNumber)).map((column) => column.title);
  const peaks = [...new Set(arms.map((arm) => arm.cost?.peak_name).filter(Boolean))];
  const sentences = [
    `Speed and what it takes to equal loss are relative to ${short(report.reference)}: tokens to equal loss is the budget that ` +
      'reaches its final loss, time to equal loss (and with it the price) is that divided by the speed.',
    peaks.length ? `FLOP utilisation is the model's TFLOP/s beside those of this machine (${joined(peaks.map(short))}).` : null,
    known.some((column) => column.title === 'device busy') ? 'Device busy is the share of time with work on the device.' : null,
    'Underlined is the best of a column.',
    ...missingText(missing),
  ];
  note(sentences.filter(Boolean).join(' '));
  const best = known.map((column) => bestOf(column.values, column.best));
  const rows = arms.map((arm, index) => ({
    cells: [armName(index, arm), ...known.map((column) => column.write(column.values[index]))],
    best: new Set(known.flatMap((column, i) => (best[i] !== null && column.values[index] === best[i] ? [i + 1] : [])))}));
  body.replaceChildren(dataTable('What training costs', [
    {title: 'arm'}, ...known.map((column) => ({title: column.title, number: true}))], [rows]));
}

// ---- Recovery, checks, lock

function judged(text, ok) {
  if (!text && ok !== true && ok !== false) return null;
  if (ok !== true && ok !== false) return nameElement(text);
  return html('span', {class: ok ? 'ok' : 'bad'}, html('span', {class: 'mark'}, ok ? '✓ ' : '✕ '),
              nameElement(text || (ok ? 'passed' : 'failed')));
}
function fillRecovery(report) {
  const {body, note, leaveOut} = sectionOf('recovery');
  const arms = listOf(report.arms).map((arm, index) => [arm, index]).filter(([arm]) => arm.recovery);
  if (arms.length === 0) return leaveOut();
  note('A NaN was put into a gradient, and a training was stopped and resumed.');
  const rows = arms.map(([arm, index]) => ({cells: [
    armName(index, arm), judged(arm.recovery.nan, arm.recovery.nan_ok), judged(arm.recovery.resume, arm.recovery.resume_ok)]}));
  body.replaceChildren(dataTable('Recovery tests', [
    {title: 'arm'}, {title: 'after a NaN', kind: 'words'}, {title: 'after a resume', kind: 'words'}], [rows]));
}

const UNITS = {
  nats: 'Nats: how much likelier each token of an answer becomes when the text before it tells the fact; zero is no recall.',
  ECE: 'ECE: mean difference between confidence and accuracy; zero is calibrated.',
};
function checkCell(arm, name) {
  const check = listOf(arm.checks).find((one) => one.name === name);
  if (!check || !isNumber(check.value)) return null;
  if (arm.is_reference || !isNumber(check.reference)) return write.digits(check.value);
  // Rounded first: the difference of two decimals has a tail of digits.
  const difference = signed(write.digits)(Number((check.value - check.reference).toFixed(9)));
  return html('span', {}, write.digits(check.value), html('span', {class: 'unit'}, ` (${difference})`));
}
function fillChecks(report) {
  const {body, note, leaveOut} = sectionOf('checks');
  const arms = listOf(report.arms);
  const checks = new Map(arms.flatMap((arm) => listOf(arm.checks).map((check) => [check.name, check])));
  if (checks.size === 0) return leaveOut();
  const units = new Set([...checks.values()].map((check) => check.unit));
  note(['Of the first trial of each arm, with the number of questions. In brackets, the difference from the reference.', ...Object.entries(UNITS)
    .filter(([unit]) => units.has(unit)).map(([, meaning]) => meaning)].join(' '));
  const columns = [{title: 'check'}, {title: 'unit', kind: 'exact'},
                   ...arms.map((arm, index) => ({title: armName(index, arm), number: true}))];
  const rows = [...checks].map(([name, {unit, count}]) => ({
    cells: [nameElement(name), nameElement(isNumber(count) ? `${unit} (${write.whole(count)})` : unit), ...arms.map((arm) => checkCell(arm, name))]}));
  body.replaceChildren(dataTable('Each arm scored', columns, [rows]));
}

function fillLock(report) {
  const {body, note} = sectionOf('lock');
  const {lock} = report;
  if (!lock) return note('The lock is not recorded in this report.');
  const arms = listOf(report.arms);
  const differences = listOf(lock.differences);
  note(isNumber(lock.common_keys) ? `${write.whole(lock.common_keys)} keys of the resolved configuration are equal in every arm; ` +
       (differences.length === 0 ? 'none differs.' : differences.length === 1 ? 'only the one below differs.'
         : `only the ${differences.length} below differ.`)
    : 'How many keys were equal is not recorded.');
  const hash = html('p', {class: 'hash'}, html('span', {class: 'muted'}, 'SHA-256 of the common part: '),
                    lock.common_sha256 ? nameElement(lock.common_sha256, 'code') : unavailable());
  const exact = (value) => (value === null || value === undefined ? null : nameElement(
    typeof value === 'string' ? value : JSON.stringify(value), 'code'));
  body.replaceChildren(hash);
  if (differences.length > 0) {
    body.append(dataTable('What differs between the arms', [
      {title: 'key'}, ...arms.map((arm, index) => ({title: armName(index, arm), kind: 'exact'}))], [differences.map((one) => ({
      cells: [nameElement(one.key, 'code'), ...arms.map((arm) => exact(valueOf(one.values, arm.name)))]}))]));
  }
  if (listOf(lock.axes).length > 0) {
    const rows = lock.axes.map((axis) => ({cells: [nameElement(axis.key, 'code'), exact(listOf(axis.values).join(', '))]}));
    body.append(dataTable('What every arm was trained with in turn', [{title: 'key'}, {title: 'values', kind: 'words'}], [rows]));
  }
}
