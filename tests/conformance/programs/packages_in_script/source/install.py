import subprocess
import sys

subprocess.check_call([sys.executable, "-m", "pip", "install", "emoji==2.14.1"])

import emoji  # noqa: E402

print(emoji.__version__, emoji.emojize(":thumbs_up:"))
