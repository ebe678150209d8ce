package web

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
)

// full is a view of a controller of which everything that can be measured has a value.
func full(t *testing.T) *rig {
	t.Helper()
	f := newFake(8, 4)
	f.set(troubled)
	f.set(func(s *controller.Snapshot) { s.Planes[1].Posts, s.Planes[1].Refused = 31, 2 })
	r := newRig(t, f, Options{Switches: wellSwitches})
	for _, k := range kinds {
		f.emit(controller.Event{Kind: k, Plane: 1, Port: -1, Took: 25 * time.Millisecond, Waited: time.Millisecond, Mask: 2,
			Err: "drift", Cause: controller.CauseDrift})
	}
	r.ObserveJournal(3*time.Millisecond, nil)
	r.ObserveJournal(0, errors.New("no quorum"))
	return r
}

func TestMetrics(t *testing.T) {
	r := full(t)
	_, text := r.get(t, "/metrics", nil)
	for _, want := range []string{
		`lightpath_ocs_build_info{goversion="`, `version="1.2.3"} 1`, "lightpath_ocs_leader 1", "lightpath_ocs_responds 1",
		"lightpath_ocs_fencing_token 41",
		`lightpath_ocs_plane_up{plane="p0"} 1`, `lightpath_ocs_plane_up{plane="p3"} 0`,
		`lightpath_ocs_plane_down{cause="drift",plane="p3"} 1`, `lightpath_ocs_plane_epoch{plane="p1"} 13`,
		`lightpath_ocs_plane_state{plane="p2",state="moving"} 1`, `lightpath_ocs_plane_switches_total{plane="p2"} 12`,
		`lightpath_ocs_plane_outages_total{plane="p3"} 2`,
		`lightpath_ocs_plane_failures_total{cause="drift",plane="p1"} 1`, `lightpath_ocs_switch_seconds_count{plane="p1"} 1`,
		`lightpath_ocs_switch_wait_seconds_sum{plane="p1"} 0.001`,
		"lightpath_ocs_ports 8", "lightpath_ocs_ports_attached 7", "lightpath_ocs_leases_held 1",
		"lightpath_ocs_lease_queue_length 2", "lightpath_ocs_lease_wait_seconds_count 1",
		`lightpath_ocs_plane_ports_missing{plane="p1"} 2`, `lightpath_ocs_plane_ports_posted{plane="p1"} 6`,
		"lightpath_ocs_journal_seconds_count 1", "lightpath_ocs_journal_errors_total 1",
		`lightpath_ocs_plane_posts_total{plane="p1"} 31`, `lightpath_ocs_plane_posts_refused_total{plane="p1"} 2`,
		`lightpath_ocs_events_total{kind="took-over"} 1`, `lightpath_ocs_switch_up{driver="gnmi",switch="sw"} 1`,
		"go_goroutines", "process_open_fds",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	// A standby has nothing to say of planes.
	r.charge.set(nil, "ocs2")
	_, text = r.get(t, "/metrics", nil)
	if !strings.Contains(text, "lightpath_ocs_leader 0") || strings.Contains(text, "lightpath_ocs_plane_up{") ||
		!strings.Contains(text, "lightpath_ocs_responds 1") {
		t.Error(text)
	}
}

// registryOf gathers the metrics of a view as /metrics does.
func registryOf(t *testing.T, r *rig) prometheus.Gatherer {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, r.metrics.register(registry, r.Server))
	return registry
}

func TestMetricsAreLintClean(t *testing.T) {
	families, err := registryOf(t, full(t)).Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Planes of one name, and names that are no text, do not spoil the scrape of the others.
func TestMetricsOfHostileNames(t *testing.T) {
	f := newFake(2, 3)
	f.set(func(s *controller.Snapshot) {
		s.Planes[1].Name = s.Planes[0].Name
		s.Planes[2].Name = "\xff\"\n{}"
	})
	r := newRig(t, f, Options{Planes: []string{"p0", "p0", "\xff\"\n{}"}})
	f.emit(controller.Event{Kind: "\xfe", Plane: 2})
	f.emit(controller.Event{Kind: controller.Switched, Plane: 2})
	if _, err := registryOf(t, r).Gather(); err != nil {
		t.Error(err)
	}
	if _, text := r.get(t, "/metrics", nil); strings.Count(text, "\nlightpath_ocs_plane_up{") != 3 {
		t.Error(text)
	}
}

// metricNames returns what a rule or a dashboard may refer to.
func metricNames(t *testing.T) []string {
	t.Helper()
	families, err := registryOf(t, full(t)).Gather()
	require.NoError(t, err)
	names := []string{"up"}
	for _, f := range families {
		names = append(names, f.GetName())
		if f.GetType().String() == "HISTOGRAM" {
			names = append(names, f.GetName()+"_bucket", f.GetName()+"_count", f.GetName()+"_sum")
		}
	}
	return names
}

var metricName = regexp.MustCompile(`\blightpath_ocs_[a-z_]+|\bgo_[a-z_]+|\bprocess_[a-z_]+`)

const monitoring = "../../../docs/monitoring/"

func TestAlertRules(t *testing.T) {
	data, err := os.ReadFile(monitoring + "alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.UnmarshalWithOptions(data, &file, yaml.Strict()))
	names, headings, n := metricNames(t), sections(t), 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			n++
			used := metricName.FindAllString(r.Expr, -1)
			if len(used) == 0 {
				t.Errorf("%s: %s names no metric", r.Alert, r.Expr)
			}
			for _, m := range used {
				if !slices.Contains(names, m) {
					t.Errorf("%s: there is no %s", r.Alert, m)
				}
			}
			if _, err := time.ParseDuration(r.For); err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" ||
				!slices.Contains(headings, r.Annotations["operations"]) {
				t.Errorf("%s: incomplete, or operations.md has no section %q", r.Alert, r.Annotations["operations"])
			}
		}
	}
	if n < 8 {
		t.Errorf("only %d alerts", n)
	}
}

func TestDashboard(t *testing.T) {
	data, err := os.ReadFile(monitoring + "dashboard.json")
	require.NoError(t, err)
	var board struct {
		Title  string
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(data, &board))
	names, ids := metricNames(t), map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.H == 0 || len(p.Targets) == 0 {
			t.Errorf("panel %d %q: number taken, or without place or target", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			used := metricName.FindAllString(target.Expr, -1)
			for _, m := range used {
				if !slices.Contains(names, m) {
					t.Errorf("panel %q: there is no %s", p.Title, m)
				}
			}
			if len(used) == 0 {
				t.Errorf("panel %q: %s names no metric", p.Title, target.Expr)
			}
		}
	}
	if len(board.Panels) < 8 {
		t.Errorf("only %d panels", len(board.Panels))
	}
}

// sections returns the headings of docs/operations.md.
func sections(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	var all []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			all = append(all, strings.TrimSpace(strings.TrimLeft(line, "#")))
		}
	}
	return all
}

// TestAdvice: every cause has advice, which names a section of operations.md.
func TestAdvice(t *testing.T) {
	headings := sections(t)
	source, err := os.ReadFile("../cause.go")
	require.NoError(t, err)
	all := regexp.MustCompile(` Cause = "(.+)"`).FindAllStringSubmatch(string(source), -1)
	if len(all) != len(advices) {
		t.Errorf("%d causes, %d have advice", len(all), len(advices))
	}
	for _, constant := range all {
		c := controller.Cause(constant[1])
		if a := advices[c]; a == nil || a.Do == "" || !slices.Contains(headings, a.Section) {
			t.Errorf("%s: %+v, which is no section of operations.md", c, a)
		}
	}
}
