"""Checks how many driver calls a call of the library makes besides those that enqueue work: calls.py REPORT CALLS MOST.
REPORT is that of the stub's clock, with the calls between two events, around so many calls of the library."""

import json
import sys

report, calls, most = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
with open(report) as f:
    intervals = [line for line in map(json.loads, f) if "interval" in line]
for line in intervals:
    print(line)
besides = [(line["calls"] - line["enqueues"] - 1) / calls for line in intervals]  # 1: the second event
sys.exit(not besides or max(besides) > most)
