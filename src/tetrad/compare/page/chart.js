// SPDX-License-Identifier: Apache-2.0
// Drawing: elements, axes, the line chart, the heat map and the one tooltip that they share. Text reaches the page only as
// text nodes and attributes, so names stay names whatever they contain.

const SVG = 'http://www.w3.org/2000/svg';

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
}
function html(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}
/** Users wrote these: kept apart from the direction of the text around them. */
const nameElement = (text, tag = 'span') => html(tag, {class: 'name'}, String(text ?? ''));

const COLOURS = 8;
const armClass = (index) => `s${index % COLOURS}`;
const dashClass = (index) => (index >= COLOURS ? ' again' : '');
function swatch(index) {
  return svg('svg', {class: `swatch ${armClass(index)}`, viewBox: '0 0 22 10', 'aria-hidden': 'true'},
             svg('line', {class: dashClass(index).trim(), x1: 2, x2: 20, y1: 5, y2: 5}));
}

// ---- The tooltip

const tooltip = {
  /** Rows are {index, name, value}; `data` is what tests and tools read beside the rounded text. */
  show(clientX, clientY, title, rows, data = '') {
    const box = document.getElementById('tooltip');
    box.replaceChildren(html('div', {class: 'title'}, title), ...rows.map((row) => html(
      'div', {class: 'row'}, row.index === undefined ? null : swatch(row.index), nameElement(row.name),
      html('span', {class: 'value'}, row.value))));
    box.dataset.x = data;
    box.hidden = false;
    const {width, height} = box.getBoundingClientRect();
    const left = clientX + 16 + width > window.innerWidth ? clientX - 16 - width : clientX + 16;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${Math.max(4, Math.min(clientY + 14, window.innerHeight - height - 4))}px`;
  },
  hide() { document.getElementById('tooltip').hidden = true; },
};

// ---- Axes

/** Round numbers that cover a range, about `count` of them, and how many decimals they need. */
function niceTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) values.push(i * step);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0));
  return {values, decimals};
}
/** Powers of ten with 2 and 5 between them, as far as there is room. */
function logTicks(low, high, count) {
  const factors = Math.log10(high / low) > count / 2 ? [1] : [1, 2, 5];
  const values = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; ++power) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) values.push(value);
    }
  }
  return values.filter((_, i) => i % Math.ceil(values.length / (count + 1)) === 0);
}
function scaleBetween(low, high, from, to, log) {
  const map = log ? Math.log : (value) => value;
  const start = map(low);
  const width = map(high) - start || 1;
  return {
    at: (value) => from + ((map(value) - start) / width) * (to - from),
    back: (pixel) => {
      const value = start + ((pixel - from) / (to - from)) * width;
      return log ? Math.exp(value) : value;
    },
  };
}

// ---- Paths

/** Keeps the lowest and the highest point of each bucket: no spike is lost, and the path stays short. */
function thinned(xs, ys, first, end, buckets) {
  const kept = [];
  if (end - first <= 2 * buckets) {
    for (let i = first; i < end; ++i) kept.push(i);
    return kept;
  }
  for (let bucket = 0; bucket < buckets; ++bucket) {
    const start = first + Math.floor((bucket * (end - first)) / buckets);
    const stop = first + Math.floor(((bucket + 1) * (end - first)) / buckets);
    let low = start;
    let high = start;
    for (let i = start; i < stop; ++i) {
      if (Number.isNaN(ys[i])) low = high = i;  // a hole must stay a hole
      else if (ys[i] < ys[low]) low = i;
      else if (ys[i] > ys[high]) high = i;
    }
    kept.push(Math.min(low, high));
    if (low !== high) kept.push(Math.max(low, high));
  }
  return kept;
}
const tenth = (value) => Math.round(10 * value) / 10;  // tenths of a pixel: much cheaper than toFixed
function pathData(xs, ys, indices, x, y) {
  let path = '';
  let down = false;
  for (const i of indices) {
    const missing = Number.isNaN(ys[i]);
    // The line of length zero is a dot, for points without neighbours.
    if (!missing) path += `${down ? 'L' : 'M'}${tenth(x.at(xs[i]))} ${tenth(y.at(ys[i]))}${down ? '' : 'h0'}`;
    down = !missing;
  }
  return path;
}
function bandData(series, indices, x, y) {
  let path = '';
  let run = [];
  const finish = () => {
    const corner = (i, side) => `${tenth(x.at(series.xs[i]))} ${tenth(y.at(side[i]))}`;
    if (run.length > 1) {
      path += `M${run.map((i) => corner(i, series.high)).join('L')}L${run.reverse().map((i) => corner(i, series.low)).join('L')}Z`;
    }
    run = [];
  };
  for (const i of indices) {
    if (Number.isNaN(series.low[i])) finish();
    else run.push(i);
  }
  finish();
  return path;
}

// ---- The line chart

const MARGIN = {left: 54, right: 14, top: 12, bottom: 38};
const HALF_LETTER = 3.6;     // half the width of a letter of an axis, in pixels
const POINT_BUDGET = 12000;  // points of all thin lines together: what a browser redraws while a slider moves

class LineChart {
  static count = 0;

  /** `describe` names the chart for those who do not see it. */
  constructor(figure, title, describe) {
    this.caption = html('figcaption', {}, html('b', {}, title), html('span'));
    this.plot = svg('svg', {class: 'plot', tabindex: 0, role: 'slider', 'aria-label': `${describe} Arrow keys read values.`,
                            'aria-valuemin': 0, 'aria-valuenow': 0, 'aria-valuetext': 'no point chosen'});
    this.clip = `clip-${++LineChart.count}`;
    figure.append(this.caption, this.plot);
    this.plot.addEventListener('pointermove', (event) => this.hover(event));
    this.plot.addEventListener('pointerdown', (event) => this.hover(event));
    this.plot.addEventListener('pointerleave', () => this.leave());
    this.plot.addEventListener('blur', () => this.leave());
    this.plot.addEventListener('keydown', (event) => this.key(event));
    // Asked for only when it changes: asking while drawing would make the browser lay out the page each time.
    const available = () => Math.max(260, Math.round(figure.clientWidth));
    this.width = available();
    new ResizeObserver(() => {
      if (this.width === available()) return;
      this.width = available();
      if (this.spec) this.draw();
    }).observe(figure);
  }

  /** spec: {series, x, y, caption, strip?, zero?, dots?, empty, hidden?}. A series is what average() gives, with index and name,
   *  and perhaps endings [[x, y]] and events [x]. x: {low, high, log, label, format, ticks?(width)}, y: {low, high, format,
   *  tick(value, decimals), ticks?}. */
  show(spec) {
    this.spec = spec;
    this.caption.lastChild.textContent = spec.caption;
    this.draw();
  }

  draw() {
    const {series, x, y, strip} = this.spec;
    const empty = series.every((one) => one.xs.length === 0);
    this.height = empty ? 72 : this.width < 560 ? 250 : this.spec.height ?? 330;
    const right = this.width - MARGIN.right;
    const bottom = this.height - MARGIN.bottom;
    this.x = scaleBetween(x.low, x.high, MARGIN.left, right, x.log);
    this.y = scaleBetween(y.low, y.high, bottom, MARGIN.top, false);
    setAttributes(this.plot, {viewBox: `0 0 ${this.width} ${this.height}`, width: this.width, height: this.height});
    const inside = svg('g', {'clip-path': `url(#${this.clip})`});
    // To the right there is room for the marks of the last points.
    const frame = {x: MARGIN.left, y: MARGIN.top - 6, width: right - MARGIN.left + 6, height: bottom - MARGIN.top + 7};
    this.plot.replaceChildren(svg('defs', {}, svg('clipPath', {id: this.clip}, svg('rect', frame))));
    this.grid = this.hoverGrid();
    if (empty) return this.drawEmpty();
    if (strip) this.drawStrip(strip, right);
    this.drawAxes(right, bottom);
    this.plot.append(inside);
    const lines = series.reduce((sum, one) => sum + one.trials.length, 1);
    this.trialBuckets = Math.round(Math.max(60, Math.min(this.width / 2, POINT_BUDGET / lines / 2)));
    for (const one of series) this.drawBand(inside, one);
    for (const one of series) this.drawTrials(inside, one);
    for (const one of series) this.drawMean(inside, one);
    for (const one of series) this.drawMarks(inside, one);
    this.cross = svg('line', {class: 'crosshair', y1: MARGIN.top - 6, y2: bottom, visibility: 'hidden'});
    this.dots = svg('g', {});
    this.plot.append(this.cross, this.dots);
    setAttributes(this.plot, {'aria-valuemax': Math.max(0, this.grid.length - 1)});
  }

  drawAxes(right, bottom) {
    const {x, y} = this.spec;
    for (const [value, label] of this.xTicks()) {
      const at = this.x.at(value);
      // The last one stands a little to the left of its line rather than half outside of the picture.
      const inside = Math.min(at, this.width - HALF_LETTER * label.length);
      this.plot.append(svg('line', {class: 'grid', x1: at, x2: at, y1: MARGIN.top - 6, y2: bottom}),
                       svg('text', {x: inside, y: bottom + 16, 'text-anchor': 'middle'}, label));
    }
    const ticks = y.ticks ?? niceTicks(y.low, y.high, 6);
    for (const value of ticks.values) {
      const at = this.y.at(value);
      const zero = value === 0 && this.spec.zero;
      this.plot.append(svg('line', {class: zero ? 'zero' : 'grid', x1: MARGIN.left, x2: right, y1: at, y2: at}),
                       svg('text', {x: MARGIN.left - 8, y: at + 4, 'text-anchor': 'end'}, y.tick(value, ticks.decimals)));
    }
    this.plot.append(svg('line', {class: 'axis', x1: MARGIN.left, x2: right, y1: bottom, y2: bottom}),
                     svg('text', {x: (MARGIN.left + right) / 2, y: bottom + 32, 'text-anchor': 'middle'}, x.label));
  }
  xTicks() {
    const {x} = this.spec;
    if (x.ticks) return x.ticks(this.width);
    const count = Math.round(this.width / 105);
    const values = x.log ? logTicks(x.low, x.high, count) : niceTicks(x.low, x.high, count).values;
    return values.map((value) => [value, write.count(value)]);
  }
  drawStrip(strip, right) {
    const top = this.y.at(strip.high);
    this.plot.append(svg('rect', {class: 'strip', x: MARGIN.left, width: right - MARGIN.left, y: top,
                                  height: this.y.at(strip.low) - top}),
                     svg('text', {x: MARGIN.left + 8, y: this.y.at(strip.low) - 7}, strip.label));
  }
  drawEmpty() {
    this.plot.append(svg('text', {class: 'empty', x: this.width / 2, y: this.height / 2, 'text-anchor': 'middle'},
                         this.spec.series.length > 0 ? this.spec.empty : this.spec.hidden ?? this.spec.empty));
  }

  /** The points inside the range, with one more on each side so that lines reach the edge. */
  visible(xs, ys, buckets = this.width / 2) {
    const first = Math.max(0, lowerBound(xs, this.spec.x.low) - 1);
    const end = Math.min(xs.length, lowerBound(xs, this.spec.x.high) + 1);
    return thinned(xs, ys, first, end, Math.round(buckets));
  }
  drawBand(group, series) {
    const path = bandData(series, this.visible(series.xs, series.mean), this.x, this.y);
    if (path) group.append(svg('path', {class: `band ${armClass(series.index)}`, d: path}));
  }
  drawTrials(group, series) {
    if (series.trials.length < 2) return;  // the only trial is the mean
    for (const {xs, ys} of series.trials) {
      const path = pathData(xs, ys, this.visible(xs, ys, this.trialBuckets), this.x, this.y);
      if (path) group.append(svg('path', {class: `trial ${armClass(series.index)}${dashClass(series.index)}`, d: path}));
    }
  }
  /** Dotted where not every trial has a value, so that the survivors' mean is not taken for that of all. */
  drawMean(group, series) {
    const {xs, mean, counts, total} = series;
    const whole = mean.map((value, i) => (counts[i] === total ? value : NaN));
    // Joined to what is before it, unless the mean leaps there because a trial that diverged is gone.
    const rest = mean.map((value, i) => (counts[i] < total || (counts[i + 1] < total && !series.lost) ? value : NaN));
    const kind = this.spec.dots ? 'mean profile' : 'mean';
    const draw = (ys, classes) => {
      const path = pathData(xs, ys, this.visible(xs, ys), this.x, this.y);
      const attributes = {class: `${classes} ${armClass(series.index)}`, d: path, 'data-arm': series.index};
      if (path) group.append(svg('path', attributes));
    };
    draw(whole, kind + dashClass(series.index));
    if (counts.some((count) => count < total)) draw(rest, `${kind} partial`);
  }
  drawMarks(group, series) {
    const classes = armClass(series.index);
    if (this.spec.dots) {
      const radius = series.xs.length > 60 ? 2.4 : 3.6;
      series.mean.forEach((value, i) => {
        if (Number.isNaN(value)) return;
        group.append(svg('circle', {class: `point ${classes}`, cx: this.x.at(series.xs[i]), cy: this.y.at(value), r: radius}));
      });
    }
    for (const tokens of series.events ?? []) {
      const at = tenth(this.x.at(Math.max(tokens, this.spec.x.low)));
      if (tokens >= this.spec.x.low) group.append(svg('path', {class: `event ${classes}`, d: `M${at} ${MARGIN.top + 2}l-4 -7h8z`}));
    }
    for (const [tokens, value] of series.endings ?? []) {
      const [x, y] = [this.x.at(tokens), Math.max(this.y.at(value), MARGIN.top + 9)].map(tenth);
      group.append(svg('path', {class: `ending ${classes}`, d: `M${x} ${y}m-4 -4l8 8m0 -8l-8 8`}));
    }
  }

  /** Where the crosshair may stand: at the points of the longest curve that is shown. */
  hoverGrid() {
    const {series, x} = this.spec;
    const longest = series.reduce((best, one) => (one.xs.length > best.length ? one.xs : best), []);
    return Array.from(longest).filter((value) => value >= x.low && value <= x.high);
  }
  hover(event) {
    if (!this.spec || this.grid.length === 0) return;
    const box = this.plot.getBoundingClientRect();
    const pixel = ((event.clientX - box.left) / box.width) * this.width;
    this.stand(nearestIndex(this.grid, this.x.back(pixel)), event.clientX, event.clientY);
  }
  key(event) {
    const last = this.grid.length - 1;
    const page = Math.max(1, Math.round(last / 10));
    const at = this.index ?? last;
    const next = {ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
                  PageDown: at - page, PageUp: at + page, Home: 0, End: last}[event.key];
    if (event.key === 'Escape') this.leave();
    if (next === undefined || last < 0) return;
    event.preventDefault();
    const box = this.plot.getBoundingClientRect();
    const index = Math.max(0, Math.min(last, next));
    this.stand(index, box.left + (this.x.at(this.grid[index]) / this.width) * box.width, box.top + 0.3 * box.height);
  }
  stand(index, clientX, clientY) {
    const {series, x, y} = this.spec;
    this.index = index;
    const at = this.grid[index];
    const pixel = this.x.at(at);
    setAttributes(this.cross, {x1: pixel, x2: pixel, visibility: 'visible'});
    this.dots.replaceChildren();
    const rows = series.map((one) => {
      const value = valueAt(one.xs, one.mean, at);
      const known = !Number.isNaN(value);
      const count = known ? one.counts[nearestIndex(one.xs, at)] : 0;
      if (known) this.dots.append(svg('circle', {class: `point ${armClass(one.index)}`, cx: pixel, cy: this.y.at(value), r: 4}));
      const note = known && count < one.total ? ` (${count} of ${one.total})` : '';
      return {index: one.index, name: one.name, value: known ? y.format(value) + note : 'no value'};
    });
    const title = x.format(at);
    tooltip.show(clientX, clientY, title, rows, String(at));
    setAttributes(this.plot, {'aria-valuenow': index,
                              'aria-valuetext': `${title}: ${rows.map((row) => `${row.name} ${row.value}`).join(', ')}`});
  }
  leave() {
    this.index = undefined;
    tooltip.hide();
    if (!this.cross) return;
    this.cross.setAttribute('visibility', 'hidden');
    this.dots.replaceChildren();
  }
}

// ---- The heat map: operands down, layers across

const HEAT_STEPS = 4;
/** A colour between two steps of the scale, left to the style sheet so that it follows the theme. */
function heatColour(share) {
  const place = Math.max(0, Math.min(1, share)) * HEAT_STEPS;
  const step = Math.min(HEAT_STEPS - 1, Math.floor(place));
  const part = Math.round(100 * (place - step));
  return `color-mix(in oklab, var(--heat-${step + 1}) ${part}%, var(--heat-${step}))`;
}

class HeatMap {
  static LEFT = 76;
  static ROW = 19;

  /** cells: Map from "layer operand" to cell; `key` makes that string. */
  constructor(host, map) {
    Object.assign(this, map);
    this.plot = svg('svg', {class: 'plot', tabindex: 0, role: 'slider', 'aria-valuemin': 0, 'aria-valuenow': 0,
                            'aria-valuemax': this.layers.length * this.operands.length - 1,
                            'aria-valuetext': 'no cell chosen', 'aria-label': this.label});
    this.host = host;
    host.append(this.plot);
    this.plot.addEventListener('pointermove', (event) => this.hover(event));
    this.plot.addEventListener('pointerdown', (event) => this.hover(event));
    this.plot.addEventListener('pointerleave', () => this.leave());
    this.plot.addEventListener('blur', () => this.leave());
    this.plot.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => {
      if (this.metric && this.available !== host.clientWidth) this.show(this.metric);
    }).observe(host);
  }

  /** metric: {share(cell) from harmless 0 to harmful 1 or null, format} */
  show(metric) {
    this.metric = metric;
    this.available = this.host.clientWidth;
    const room = (this.available - HeatMap.LEFT - 8) / this.layers.length;
    this.cell = Math.max(7, Math.min(44, room));
    const labels = this.drawLabels();
    const width = HeatMap.LEFT + this.cell * this.layers.length + 8;
    const height = HeatMap.ROW * this.operands.length + labels.height;
    // Not stretched: many layers scroll inside their box, few stay small.
    setAttributes(this.plot, {viewBox: `0 0 ${width} ${height}`, width, height, style: `width:${width}px`});
    this.mark = svg('rect', {class: 'cell-mark', visibility: 'hidden', width: this.cell, height: HeatMap.ROW});
    this.plot.replaceChildren(...this.drawCells(), ...labels.elements, this.mark);
  }
  drawCells() {
    const elements = [];
    const gap = this.cell > 12 ? 1.5 : 0.5;
    this.operands.forEach((operand, row) => {
      elements.push(svg('text', {x: HeatMap.LEFT - 8, y: row * HeatMap.ROW + 13.5, 'text-anchor': 'end'}, operand));
      this.layers.forEach((layer, column) => {
        const cell = this.cells.get(this.keyOf(layer, operand));
        const share = cell ? this.metric.share(cell) : null;
        const fill = share === null ? {class: 'heat-ground'} : {style: `fill:${heatColour(share)}`};
        elements.push(svg('rect', {...fill, x: HeatMap.LEFT + column * this.cell, y: row * HeatMap.ROW,
                                   width: this.cell - gap, height: HeatMap.ROW - 1.5}));
      });
    });
    return elements;
  }
  /** Every layer by name where the columns are wide enough; else the number of each block below its first layer. */
  drawLabels() {
    const below = HeatMap.ROW * this.operands.length;
    const parts = this.layers.map((layer) => /^(.*?(\d+))\.[^.]*$/.exec(layer));
    if (this.cell >= 26 || parts.includes(null)) return this.drawNames(below);
    let free = 0;
    const elements = [];
    parts.forEach(([, block, number], column) => {
      const x = HeatMap.LEFT + (column + 0.5) * this.cell;
      if ((column > 0 && parts[column - 1][1] === block) || x < free) return;
      free = x + 22;
      elements.push(svg('text', {x, y: below + 14, 'text-anchor': 'middle'}, number));
    });
    elements.push(svg('text', {x: HeatMap.LEFT - 8, y: below + 14, 'text-anchor': 'end'}, 'block'));
    return {elements, height: 20};
  }
  drawNames(below) {
    const shown = this.layers.map((layer) => (layer.length > 18 ? `…${layer.slice(-17)}` : layer));
    const every = Math.ceil(13 / this.cell);  // a line of text must not lie on the next
    const elements = shown.flatMap((text, column) => {
      const x = (HeatMap.LEFT + (column + 0.5) * this.cell + 4).toFixed(1);
      const slanted = {transform: `translate(${x} ${below + 8}) rotate(-58)`, 'text-anchor': 'end'};
      return column % every ? [] : [svg('text', slanted, text)];
    });
    return {elements, height: 16 + Math.max(...shown.map((text) => text.length), 4) * 5.4};
  }

  hover(event) {
    const box = this.plot.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - HeatMap.LEFT) / this.cell);
    const row = Math.floor((event.clientY - box.top) / HeatMap.ROW);
    const inside = column >= 0 && column < this.layers.length && row >= 0 && row < this.operands.length;
    if (inside) this.stand(column, row, event.clientX, event.clientY);
    else this.leave();
  }
  key(event) {
    if (event.key === 'Escape') this.leave();
    const move = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (!move) return;
    event.preventDefault();
    const [column, row] = this.place ?? [move[0] < 0 ? 1 : -move[0], move[1] < 0 ? 1 : -move[1]];
    const limit = (value, count) => Math.max(0, Math.min(count - 1, value));
    const next = [limit(column + move[0], this.layers.length), limit(row + move[1], this.operands.length)];
    const box = this.plot.getBoundingClientRect();
    this.stand(...next, box.left + HeatMap.LEFT + (next[0] + 1) * this.cell, box.top + (next[1] + 1) * HeatMap.ROW);
  }
  stand(column, row, clientX, clientY) {
    this.place = [column, row];
    const [layer, operand] = [this.layers[column], this.operands[row]];
    const rows = this.describe(this.cells.get(this.keyOf(layer, operand)));
    setAttributes(this.mark, {x: HeatMap.LEFT + column * this.cell - 0.5, y: row * HeatMap.ROW - 0.5, visibility: 'visible'});
    tooltip.show(clientX, clientY, `${layer} · ${operand}`, rows, `${layer} ${operand}`);
    const spoken = rows.map((one) => `${one.name} ${one.value}`).join(', ');
    setAttributes(this.plot, {'aria-valuenow': row * this.layers.length + column,
                              'aria-valuetext': `${layer} ${operand}: ${spoken}`});
  }
  leave() {
    this.place = undefined;
    tooltip.hide();
    if (this.mark) this.mark.setAttribute('visibility', 'hidden');
  }
}
