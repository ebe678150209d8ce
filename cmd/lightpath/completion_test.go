package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		args  string
		offer string
	}{
		{"plan solve --planner ", "swot"},
		{"plan build --planner ", "auto"},
		{"plan build --collective ", "alltoall"},
		{"plan build --collective allreduce --algorithm ", "ring"},
		{"schedule show --algorithm ", "bruck"},
		{"plan problem --circuits ", "interleaved"},
		{"bench --transport ", "rdma"},
		{"bench ", "allreduce"},
		{"plan show --in ", "json"},
		{"fabric up --fabric ", "yaml"},
		{"schema ", "plan"},
		{"iteration import --model ", "mixtral-8x22b"},
		{"iteration import --format ", "flight"},
		{"iteration plan --fabric ", "yaml"},
	} {
		args := strings.Split(c.args, " ")
		out := lightpath.Run(t, "", append([]string{"__complete"}, args...)...).Stdout
		if !slices.Contains(strings.Split(out, "\n"), c.offer) {
			t.Errorf("lightpath %s: does not offer %q:\n%s", c.args, c.offer, out)
		}
	}
}

// TestCompletionOfOtherMeanings checks flags whose names have another meaning in other commands.
func TestCompletionOfOtherMeanings(t *testing.T) {
	for args, never := range map[string]string{
		"topology delta plan --algorithm ":    "ring",
		"topology delta simulate --circuits ": "duplex",
		"bench latency --transport ":          "rdma",
		"topology delta exact --model ":       "gpt-7b",
		"topology delta import --format ":     "flight",
		"bench alltoall --algorithm ":         "ring",
	} {
		out := lightpath.Run(t, "", append([]string{"__complete"}, strings.Split(args, " ")...)...).Stdout
		if slices.Contains(strings.Split(out, "\n"), never) {
			t.Errorf("lightpath %s: offers %q", args, never)
		}
	}
}
