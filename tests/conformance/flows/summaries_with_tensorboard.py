"""What TensorBoard's own reader finds in our event files. Its argument is the folder of a run; it prints JSON."""

import json
import sys

from tensorboard.backend.event_processing import event_accumulator


def main(folder: str) -> None:
    reader = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0})
    reader.Reload()
    tags = reader.Tags()
    scalars = {tag: [[each.step, each.value] for each in reader.Scalars(tag)] for tag in tags["scalars"]}
    histograms = {
        tag: [
            {
                "step": each.step,
                "min": each.histogram_value.min,
                "max": each.histogram_value.max,
                "num": each.histogram_value.num,
                "sum": each.histogram_value.sum,
                "limits": list(each.histogram_value.bucket_limit),
                "counts": list(each.histogram_value.bucket),
            }
            for each in reader.Histograms(tag)
        ]
        for tag in tags["histograms"]
    }
    print(json.dumps({"scalars": scalars, "histograms": histograms}))


main(sys.argv[1])
