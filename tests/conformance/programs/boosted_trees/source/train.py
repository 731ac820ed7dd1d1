import json
import os

import numpy as np
import xgboost as xgb

params = json.loads(os.environ["SM_HPS"])
rounds = params.pop("num_round")


def read(channel):
    table = np.loadtxt(os.path.join(os.environ[f"SM_CHANNEL_{channel.upper()}"], "digits.csv"), delimiter=",")
    return xgb.DMatrix(table[:, :-1], label=table[:, -1])


train, test = read("train"), read("test")
model = xgb.train(params, train, rounds, evals=[(train, "train"), (test, "test")])
model.save_model(os.path.join(os.environ["SM_MODEL_DIR"], "xgboost-model.json"))
