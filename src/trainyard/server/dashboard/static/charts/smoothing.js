/** Smoothing of curves, and their reduction to what a screen can show. */

/**
 * The exponential moving average without the bias towards its start. A constant stays exactly what it is; a value that
 * is no number stays a gap and changes nothing around it.
 * @param {ArrayLike<number>} values @param {number} weight of what came before, from 0 to less than 1
 */
export function smooth(values, weight) {
  const smoothed = new Float64Array(values.length);
  let mean = 0;
  let total = 0;
  for (let number = 0; number < values.length; number++) {
    const value = values[number];
    if (!Number.isFinite(value)) {
      smoothed[number] = NaN;
      continue;
    }
    total = total * weight + 1;
    mean += (value - mean) / total;
    smoothed[number] = mean;
  }
  return smoothed;
}

/**
 * A curve of at most two points for each column of pixels, its lowest and its highest in the order of their x, which
 * covers the pixels of the whole curve. Columns begin at multiples of their width, so panning needs no new reduction.
 * NaN in y is a gap, and remains one.
 * @param {Float64Array} x ascending @param {Float64Array} y @param {number} width of a column in units of x
 */
export function reduceToColumns(x, y, width) {
  const reduced = { x: new Float64Array(x.length), y: new Float64Array(x.length) };
  let length = 0;
  const push = (from) => {
    reduced.x[length] = x[from];
    reduced.y[length++] = y[from];
  };
  for (let number = 0; number < x.length; ) {
    if (Number.isNaN(y[number])) {
      if (length > 0 && !Number.isNaN(reduced.y[length - 1])) push(number);
      number++;
      continue;
    }
    const end = (Math.floor(x[number] / width) + 1) * width;
    let [lowest, highest] = [number, number];
    for (number++; number < x.length && x[number] < end && !Number.isNaN(y[number]); number++) {
      if (y[number] < y[lowest]) lowest = number;
      else if (y[number] > y[highest]) highest = number;
    }
    push(Math.min(lowest, highest));
    if (lowest !== highest) push(Math.max(lowest, highest));
  }
  return { x: reduced.x.subarray(0, length), y: reduced.y.subarray(0, length) };
}

/** The first index whose value is not less. @param {ArrayLike<number>} sorted @param {number} value */
export function lowerBound(sorted, value, from = 0, to = sorted.length) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (sorted[middle] < value) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** The index whose value is nearest; -1 of none. @param {ArrayLike<number>} sorted @param {number} value */
export function nearest(sorted, value) {
  if (sorted.length === 0) return -1;
  const after = Math.min(lowerBound(sorted, value), sorted.length - 1);
  return after > 0 && value - sorted[after - 1] < sorted[after] - value ? after - 1 : after;
}

/**
 * The range of values without outliers: as far as the middle nine tenths of them, and half as far again to each side.
 * @param {Float64Array} sorted ascending, without NaN
 */
export function rangeWithoutOutliers(sorted) {
  const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
  const [low, high] = [at(0.05), at(0.95)];
  const reach = (high - low) / 2;
  return [Math.max(at(0), low - reach), Math.min(at(1), high + reach)];
}
