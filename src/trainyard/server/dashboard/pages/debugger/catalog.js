/** The words of the page: kinds of tensors, statistics, and short names of tensors. */

/** What the map of all layers can show; losses and scalars are read better as curves. @type {{id: string, title: string, kind: string, statistic?: string}[]} */
export const GROUPS = [
  { id: "gradient", title: "Gradients", kind: "gradient" },
  { id: "weight", title: "Weights", kind: "weight" },
  { id: "bias", title: "Biases", kind: "bias" },
  { id: "output", title: "Activations (outputs)", kind: "output" },
  { id: "input", title: "Inputs of modules", kind: "input" },
  { id: "update", title: "Updates of weights", kind: "", measures: ["update_norm_ratio", "update_ratio"] },
  { id: "optimizer", title: "Optimizer state", kind: "optimizer" },
  { id: "custom", title: "Other tensors", kind: "custom" },
];

/** @type {[string, string][]} */
export const STATISTICS = [
  ["l2", "Norm (L2)"],
  ["mean_abs", "Mean magnitude"],
  ["abs_max", "Largest magnitude"],
  ["std", "Standard deviation"],
  ["variance", "Variance"],
  ["mean", "Mean"],
  ["min", "Minimum"],
  ["max", "Maximum"],
  ["zero_share", "Share of zeros"],
  ["zeros", "Number of zeros"],
  ["nans", "Number of NaN"],
  ["infs", "Number of infinities"],
];

const MEASURES = {
  value: "Value",
  update_ratio: "Update / weight, per element",
  update_norm_ratio: "Norm of the update / norm of the weight",
  idle_units: "Share of idle units",
  quantile_range: "Distance of quantiles",
  cosine: "Cosine to the step before",
  zero_rows: "Share of rows that are zero",
  row_entropy: "Entropy of rows",
  channel_mean: "Mean of a channel",
  value_share: "Share of a value",
  checksum: "Checksum",
};

/** Statistics with a sign, which have no logarithm. */
const SIGNED = new Set(["mean", "min", "max", "cosine", "channel_mean"]);

export const isSigned = (statistic) => SIGNED.has(statistic);

export function statisticTitle(word) {
  return STATISTICS.find(([each]) => each === word)?.[1] ?? MEASURES[word] ?? word;
}

/**
 * @typedef {{name: string, kind: string, shape: number[], dtype: string, collections: string[], module: string,
 *   workers: string[], measures: string[]}} Tensor
 * @returns {Tensor}
 */
export function asTensor([name, kind, shape, dtype, collections, module, workers, measures]) {
  return { name, kind, shape, dtype, collections, module, workers, measures };
}

/** @param {Tensor} tensor */
export function sizeOf(tensor) {
  return tensor.shape.reduce((product, each) => product * each, 1);
}

/** The statistics of a tensor, as words. @param {Tensor} tensor */
export function statisticsOf(tensor) {
  const words = STATISTICS.map(([word]) => word);
  return [...(sizeOf(tensor) === 1 ? ["value"] : words), ...tensor.measures];
}

/** The name of a tensor within its module: "weight", "gradient of weight", "output 0". @param {Tensor} tensor */
export function nameInModule(tensor) {
  const isGradient = tensor.name.startsWith("gradient/");
  const plain = tensor.name.replace(/^gradient\//, "");
  const at = tensor.module ? plain.indexOf(tensor.module) : -1;
  const rest = at < 0 ? plain : plain.slice(at + tensor.module.length).replace(/^[._/]/, "") || plain;
  return isGradient ? `${rest} ′` : rest;
}

/** Names without what all of them begin with, up to a separator. @param {string[]} names */
export function shorten(names) {
  if (names.length < 2) return names;
  let common = names[0];
  for (const name of names) while (!name.startsWith(common)) common = common.slice(0, -1);
  const end = Math.max(common.lastIndexOf("."), common.lastIndexOf("/"), common.lastIndexOf("_")) + 1;
  return names.map((name) => name.slice(end));
}

/** @param {number[]} shape */
export function shapeText(shape) {
  return shape.length === 0 ? "scalar" : shape.join(" × ");
}
