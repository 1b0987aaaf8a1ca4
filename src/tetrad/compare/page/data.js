// SPDX-License-Identifier: Apache-2.0
'use strict';
// The report as data: how numbers are written, how curves are smoothed, paired and averaged, what a download holds.
// Nothing here touches the page.

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
const listOf = (value) => (Array.isArray(value) ? value : []);
/** Names come from users: "__proto__" must be a key like any other. */
const valueOf = (object, key) => (object && Object.hasOwn(object, key) ? object[key] : null);

/** Sentences need names of a modest length; tables and cards have them whole. */
const short = (name) => (String(name ?? '').length > 40 ? `${String(name).slice(0, 39)}…` : String(name ?? ''));
/** A copy without the characters that reverse the text around them; downloads keep the report as it is. */
const withoutReversals = (report) => JSON.parse(
  JSON.stringify(report).replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd'));

// ---- Numbers in words. Each gives null for what is unknown; the page writes "unavailable" then, never 0.

const withMinus = (text) => text.replace(/^-/, '−');
const whenNumber = (write) => (value) => (isNumber(value) ? withMinus(write(value)) : null);
const signed = (write) => (value) => (isNumber(value) && value > 0 ? `+${write(value)}` : write(value));

const SUFFIXES = ['', '\u00a0k', '\u00a0M', '\u00a0G', '\u00a0T', '\u00a0P'];
function scaled(value, base, suffixes) {
  let step = 0;
  // 999.5 would be written as 1000.
  while (Math.abs(value) >= base - 0.5 && step + 1 < suffixes.length) {
    value /= base;
    ++step;
  }
  return Number(value.toPrecision(3)) + suffixes[step];
}
function secondsText(value) {
  if (value < 0.9995) return `${Number((value * 1000).toPrecision(3))}\u00a0ms`;
  if (value < 120) return `${Number(value.toPrecision(3))}\u00a0s`;
  return value < 7200 ? `${(value / 60).toFixed(1)}\u00a0min` : `${(value / 3600).toFixed(1)}\u00a0h`;
}
/** Three digits that matter, without an exponent as long as a reader need not count zeros. */
function threeDigits(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2);
  return size >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

const write = {
  fixed: (digits) => whenNumber((value) => value.toFixed(digits)),
  loss: whenNumber((value) => value.toFixed(4)),
  count: whenNumber((value) => scaled(value, 1000, SUFFIXES)),
  whole: whenNumber((value) => value.toFixed(0).replace(/\B(?=(\d{3})+$)/g, '\u202f')),
  bytes: whenNumber((value) => scaled(value, 1024, ['\u00a0B', '\u00a0KiB', '\u00a0MiB', '\u00a0GiB', '\u00a0TiB'])),
  seconds: whenNumber(secondsText),
  digits: whenNumber(threeDigits),
  ratio: whenNumber((value) => `${value.toFixed(value < 10 ? 2 : 1)}×`),
  margin: whenNumber((value) => `${threeDigits(value)}\u00a0%`),
  percent: whenNumber((value) => `${value.toFixed(Math.abs(value) < 100 ? 2 : 0)}\u00a0%`),
  share: whenNumber((value) => `${threeDigits(100 * value)}\u00a0%`),
  probability: whenNumber((value) => (value < 0.001 ? '< 0.001' : value.toFixed(3))),
};
write.gap = signed(write.percent);
write.gapNats = signed(write.loss);
write.interval = (pair) => (Array.isArray(pair) && pair.every(isNumber) && pair.length === 2
  ? `${write.gap(pair[0])} to ${write.gap(pair[1])}` : null);

function dateText(iso) {
  const date = new Date(iso ?? '');
  return Number.isNaN(date.getTime()) ? (iso || null) : `${date.toISOString().slice(0, 16).replace('T', ' ')} UTC`;
}

// ---- Curves. A curve is {xs, ys}: tokens ascending, NaN where a value is missing.

function curveFrom(tokens, values, transform = (value) => value) {
  const length = Math.min(listOf(tokens).length, listOf(values).length);
  const xs = new Float64Array(length);
  const ys = new Float64Array(length);
  for (let i = 0; i < length; ++i) {
    xs[i] = tokens[i];
    ys[i] = isNumber(values[i]) ? transform(values[i]) : NaN;
  }
  return {xs, ys};
}

/** What is drawn of a trial. Gradient norms are kept as logarithms, so that means and bands are those of the log axis. */
function runFrom(trial) {
  const facet = [trial.lr_factor ?? 1, trial.mix ?? ''];
  return {
    seed: trial.seed,
    ending: trial.ending,
    facet: JSON.stringify(facet),
    pair: JSON.stringify([trial.seed, ...facet]),
    train: curveFrom(trial.tokens, trial.loss),
    norm: curveFrom(trial.tokens, trial.grad_norm, (value) => (value > 0 ? Math.log10(value) : NaN)),
    heldout: new Map(listOf(trial.evals).map((held) => [held.source, curveFrom(held.tokens, held.loss)])),
    events: listOf(trial.events),
  };
}

/** Centred mean over `width` tokens. At the beginning, where a loss falls steeply, the window shrinks on both sides alike, so
 *  that the curve is not bent; at the end, which is what one reads off, it is cut, so that noise is averaged there too. */
function smooth({xs, ys}, width) {
  const length = xs.length;
  const spacing = length > 1 ? (xs[length - 1] - xs[0]) / (length - 1) : 0;
  const half = spacing > 0 ? Math.round(width / spacing / 2) : 0;
  if (half === 0) return {xs, ys};
  const sums = new Float64Array(length + 1);
  const counts = new Uint32Array(length + 1);
  for (let i = 0; i < length; ++i) {
    const known = !Number.isNaN(ys[i]);
    sums[i + 1] = sums[i] + (known ? ys[i] : 0);
    counts[i + 1] = counts[i] + (known ? 1 : 0);
  }
  const smoothed = ys.map((value, i) => {
    const reach = Math.min(half, i);
    const first = i - reach;
    const end = Math.min(i + reach + 1, length);
    return Number.isNaN(value) ? NaN : (sums[end] - sums[first]) / (counts[end] - counts[first]);
  });
  return {xs, ys: smoothed};
}

/** The first index whose x is not less. */
function lowerBound(xs, x) {
  let low = 0;
  let high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Linear between neighbours; NaN outside the curve and beside its holes. */
function valueAt(xs, ys, x) {
  const right = lowerBound(xs, x);
  if (right < xs.length && xs[right] === x) return ys[right];
  if (right === 0 || right === xs.length) return NaN;
  const share = (x - xs[right - 1]) / (xs[right] - xs[right - 1]);
  return ys[right - 1] + share * (ys[right] - ys[right - 1]);
}

const nearestIndex = (xs, x) => {
  const right = Math.min(lowerBound(xs, x), xs.length - 1);
  return right > 0 && x - xs[right - 1] < xs[right] - x ? right - 1 : right;
};

/** Which of the values at a point are averaged. Where some trials are gone, those that diverged would make the mean leap as each
 *  ends, so only the others count there, if there are any. */
function averaged(curves, values) {
  const known = values.filter((value) => !Number.isNaN(value));
  if (known.length === curves.length) return known;
  const healthy = values.filter((value, i) => !Number.isNaN(value) && !curves[i].lost);
  return healthy.length > 0 ? healthy : known;
}

/** Mean of several curves on the points of the longest, with a band: one standard deviation to each side for three or more,
 *  from the lowest to the highest for two, none for one or where trials diverged. */
function average(curves) {
  const longest = curves.reduce((best, curve) => ((curve.xs.at(-1) ?? 0) > (best.xs.at(-1) ?? 0) ? curve : best),
                                curves[0] ?? {xs: new Float64Array(0), ys: new Float64Array(0)});
  const {xs} = longest;
  const lost = curves.some((curve) => curve.lost);
  const result = {xs, lost, total: curves.length, trials: curves, counts: new Uint16Array(xs.length)};
  for (const part of ['mean', 'low', 'high']) result[part] = new Float64Array(xs.length).fill(NaN);
  for (let i = 0; i < xs.length; ++i) {
    const values = averaged(curves, curves.map(
      (curve) => (curve.xs[i] === xs[i] ? curve.ys[i] : valueAt(curve.xs, curve.ys, xs[i]))));
    result.counts[i] = values.length;
    if (values.length === 0) continue;
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    result.mean[i] = mean;
    if (lost) continue;
    if (values.length === 2) {
      [result.low[i], result.high[i]] = [Math.min(...values), Math.max(...values)];
    } else if (values.length > 2) {
      const sd = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
      [result.low[i], result.high[i]] = [mean - sd, mean + sd];
    }
  }
  return result;
}

/** Percent by which a curve lies above that of the reference, at its own points. */
function gapBetween(curve, reference) {
  return {
    xs: curve.xs,
    lost: curve.lost || reference.lost,
    ys: curve.ys.map((value, i) => {
      const x = curve.xs[i];
      const base = reference.xs[i] === x ? reference.ys[i] : valueAt(reference.xs, reference.ys, x);
      return 100 * (value / base - 1);
    }),
  };
}

// ---- Downloads

/** A cell as RFC 4180 has it. A text that a spreadsheet would run as a formula gets an apostrophe in front. */
function csvCell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value !== 'string') return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const csvText = (rows) => rows.map((row) => `${row.map(csvCell).join(',')}\r\n`).join('');

function curvesCsv(report) {
  const rows = [['arm', 'seed', 'lr_factor', 'mix', 'source', 'tokens', 'loss', 'grad_norm']];
  for (const arm of listOf(report.arms)) {
    for (const trial of listOf(arm.trials)) {
      const start = [arm.name, trial.seed, trial.lr_factor, trial.mix];
      listOf(trial.tokens).forEach((tokens, i) => {
        rows.push([...start, 'training', tokens, listOf(trial.loss)[i], listOf(trial.grad_norm)[i]]);
      });
      for (const held of listOf(trial.evals)) {
        listOf(held.tokens).forEach((tokens, i) => {
          rows.push([...start, `held-out: ${held.source}`, tokens, listOf(held.loss)[i], null]);
        });
      }
    }
  }
  return csvText(rows);
}

/** Every single number of an arm as [name, value], e.g. cost.tokens_per_s or heldout.code.loss. */
function numbersOf(arm, reference) {
  const numbers = [];
  const add = (prefix, object, skip = []) => {
    for (const [key, value] of Object.entries(object ?? {})) {
      if (skip.includes(key) || (value !== null && typeof value === 'object')) continue;
      numbers.push([`${prefix}.${key}`, value]);
    }
  };
  add('verdict', arm.verdict);
  const [low, high] = listOf(arm.verdict?.interval_percent);
  numbers.push(['verdict.interval_low_percent', low], ['verdict.interval_high_percent', high]);
  add('divergences', arm.divergences);
  add('spikes', arm.spikes);
  numbers.push(['skipped_steps', arm.skipped_steps]);
  for (const held of listOf(arm.heldout)) {
    add(`heldout.${held.source}`, held, ['source']);
    const [from, to] = listOf(held.interval_percent);
    numbers.push([`heldout.${held.source}.interval_low_percent`, from], [`heldout.${held.source}.interval_high_percent`, to]);
  }
  for (const check of listOf(arm.checks)) add(`checks.${check.name}`, check, ['name']);
  add('gradient', arm.gradient);
  add('fixed_weights', arm.fixed_weights);
  add('cost', arm.cost);
  numbers.push(['cost.time_to_reference_loss', timeToReferenceLoss(arm)],
               ['cost.energy_to_reference_loss', energyToReferenceLoss(arm, reference)]);
  add('recovery', arm.recovery);
  return numbers;
}

/** A row for each arm; the columns are the union of what the arms have, in the order met. */
function tableCsv(report) {
  const reference = listOf(report.arms).find((arm) => arm.is_reference);
  const rows = listOf(report.arms).map(
    (arm) => new Map([['arm', arm.name], ['description', arm.description], ...numbersOf(arm, reference)]));
  const columns = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  return csvText([columns, ...rows.map((row) => columns.map((column) => row.get(column)))]);
}

function quantizerCsv(report) {
  const columns = ['layer', 'operand', 'sqnr_db', 'underflow', 'saturated', 'zero_scale_blocks', 'amax'];
  const rows = listOf(report.arms).flatMap((arm) => listOf(arm.quantizer?.cells).map(
    (cell) => [arm.name, arm.quantizer.step, ...columns.map((column) => cell[column])]));
  return csvText([['arm', 'step', ...columns], ...rows]);
}

/** Mean over the sources at the last evaluation: what the verdicts are about. */
function heldoutLoss(arm) {
  const losses = listOf(arm.heldout).map((held) => held.loss);
  return losses.length && losses.every(isNumber) ? losses.reduce((sum, loss) => sum + loss, 0) / losses.length : null;
}
/** Relative time, and with it money, until the reference's final loss is reached. */
function timeToReferenceLoss(arm) {
  const {tokens_to_reference_loss: tokens, speed} = arm.cost ?? {};
  return isNumber(tokens) && isNumber(speed) && speed > 0 ? tokens / speed : null;
}
/** Relative energy until the reference's final loss is reached. */
function energyToReferenceLoss(arm, reference) {
  const {tokens_to_reference_loss: tokens, joules_per_token: joules} = arm.cost ?? {};
  const base = reference?.cost?.joules_per_token;
  return isNumber(tokens) && isNumber(joules) && isNumber(base) && base > 0 ? (tokens * joules) / base : null;
}
