/** The words and colours for phases, roles, bottlenecks and metrics. Colours are numbers of series. */

export const PHASES = [
  { key: "data_wait", name: "data wait", colour: 1 },
  { key: "host_to_device", name: "copies to the device", colour: 6 },
  { key: "forward", name: "forward", colour: 0 },
  { key: "backward", name: "backward", colour: 4 },
  { key: "optimizer", name: "optimizer", colour: 2 },
  { key: "communication", name: "communication", colour: 5 },
  { key: "checkpoint", name: "checkpoint", colour: 7 },
  { key: "other", name: "other", colour: 9 },
];

/** In the order of the numbers of roles. */
export const ROLES = [
  { name: "kernels", colour: 0 },
  { name: "copies", colour: 6 },
  { name: "fills", colour: 8 },
  { name: "communication", colour: 5 },
  { name: "launches", colour: 7 },
  { name: "data loader", colour: 1 },
  { name: "CPU operators", colour: 2 },
  { name: "other", colour: 9 },
  { name: "Python functions", colour: 3 },
  { name: "annotations", colour: 4 },
];

export const BOTTLENECKS = {
  data_loading: "Data loading", reading: "Reading of data", too_many_workers: "Too many data workers", host_to_device: "Copies to the device",
  synchronization: "Waiting for the device", python: "Python code", small_batch: "Small batch", small_kernels: "Small kernels",
  precision: "Precision", communication: "Communication", slow_rank: "A slow rank", checkpoints: "Checkpoints", memory_growth: "Growing memory",
  idle_gpu: "Idle GPU", throttling: "Throttling", initialization: "Initialization", compute: "Computing",
};

const METRICS = {
  cpu_percent: ["CPU of the machine", "%"], io_wait_percent: ["I/O wait", "%"], memory_percent: ["Memory of the machine", "%"],
  memory_bytes: ["Memory used", "B"], disk_percent: ["Disk space", "%"], disk_read_bytes_s: ["Disk reads", "B/s"], disk_write_bytes_s: ["Disk writes", "B/s"],
  network_received_bytes_s: ["Network received", "B/s"], network_sent_bytes_s: ["Network sent", "B/s"], pressure_some_percent: ["Pressure, some wait", "%"],
  pressure_full_percent: ["Pressure, all wait", "%"], job_cpu_percent: ["CPU", "%"], job_memory_bytes: ["Memory used by the job", "B"],
  job_memory_percent: ["Memory", "%"], job_read_bytes_s: ["Reads", "B/s"], job_write_bytes_s: ["Writes", "B/s"], job_processes: ["Processes", ""],
  job_threads: ["Threads", ""], job_throttled_percent: ["Stopped by its limit of cores", "%"], gpu_percent: ["GPU", "%"], gpu_memory_busy_percent: ["GPU memory busy", "%"],
  gpu_memory_percent: ["GPU memory", "%"], gpu_memory_bytes: ["GPU memory used", "B"], gpu_power_watts: ["GPU power", "W"], gpu_energy_joules: ["GPU energy", "J"],
  gpu_clock_mhz: ["GPU clock", "MHz"], gpu_temperature_celsius: ["GPU temperature", "°C"],
};

export const metricName = (metric) => METRICS[metric]?.[0] ?? metric;
export const metricUnit = (metric) => METRICS[metric]?.[1] ?? "";

/** gpu0 as GPU 0, core3 as core 3. */
export function deviceName(device) {
  const found = /^(gpu|core)(\d+)$/.exec(device);
  return found ? `${found[1] === "gpu" ? "GPU" : "core"} ${found[2]}` : device;
}

/** A rank as people call it, with the instance if there are several. */
export function workerName({ worker, instance, attempt }, workers) {
  const rank = worker.replace(/^worker_/, "rank ");
  const several = (name) => new Set(workers.map((each) => each[name])).size > 1;
  return [rank, several("instance") && `on ${instance}`, several("attempt") && `attempt ${attempt}`].filter(Boolean).join(", ");
}

/** @param {number} share from 0 to 1 */
export function formatShare(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const percent = share * 100;
  return percent > 0 && percent < 0.1 ? "< 0.1 %" : `${Number(percent.toPrecision(percent >= 99.95 ? 3 : percent >= 10 ? 3 : 2))} %`;
}

export const formatFactor = (factor) => (factor >= 100 ? "over 100 times" : `${Number(factor.toPrecision(factor < 10 ? 3 : 2))} times`);
