#!/bin/bash
set -e
pip install -q -r more.txt
python -c 'import emoji; print(emoji.__version__)'
