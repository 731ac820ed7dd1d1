import argparse
import os

import joblib
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score

parser = argparse.ArgumentParser()
parser.add_argument("--n-estimators", type=int, default=10)
parser.add_argument("--min-samples-leaf", type=int, default=3)
parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR"))
parser.add_argument("--train", default=os.environ.get("SM_CHANNEL_TRAIN"))
parser.add_argument("--test", default=os.environ.get("SM_CHANNEL_TEST"))
args, _ = parser.parse_known_args()


def read(folder):
    table = np.loadtxt(os.path.join(folder, "digits.csv"), delimiter=",")
    return table[:, :-1], table[:, -1].astype(int)


features, labels = read(args.train)
model = RandomForestClassifier(args.n_estimators, min_samples_leaf=args.min_samples_leaf, random_state=0)
model.fit(features, labels)
features, labels = read(args.test)
print("test accuracy:", accuracy_score(labels, model.predict(features)))
joblib.dump(model, os.path.join(args.model_dir, "model.joblib"))
