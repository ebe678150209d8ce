"""Solves DIR/model.lp by HiGHS as DIR/options.json says, into DIR/result.json."""

import json
import math
import sys

import highspy

directory = sys.argv[1]
with open(directory + "/options.json") as f:
    asked = json.load(f)
h = highspy.Highs()
h.setOptionValue("output_flag", False)
if asked["time_limit"] > 0:
    h.setOptionValue("time_limit", asked["time_limit"])
if asked["gap"] > 0:
    h.setOptionValue("mip_rel_gap", asked["gap"])
if asked["threads"] > 0:
    h.setOptionValue("threads", asked["threads"])
if h.readModel(directory + "/model.lp") == highspy.HighsStatus.kError:
    sys.exit("the model cannot be read")
names = h.getLp().col_names_
if asked["start"]:
    start = dict(zip(asked["names"], asked["start"]))
    solution = highspy.HighsSolution()
    solution.col_value = [start[name] for name in names]
    h.setSolution(solution)
h.run()
status, info = h.getModelStatus(), h.getInfo()
kinds = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kInfeasible: "infeasible",
    highspy.HighsModelStatus.kTimeLimit: "stopped",
    highspy.HighsModelStatus.kInterrupt: "stopped",
}
result = {"status": kinds.get(status, h.modelStatusToString(status)), "bound": None, "values": None}
if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
    result["values"] = dict(zip(names, h.getSolution().col_value))
bound = info.mip_dual_bound if info.mip_node_count >= 0 else info.objective_function_value
if math.isfinite(bound):
    result["bound"] = bound
with open(directory + "/result.json", "w") as f:
    json.dump(result, f)
