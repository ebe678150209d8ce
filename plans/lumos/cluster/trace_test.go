package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"lightpath/internal/require"
)

const goodTrace = `job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,u1,vc1,8,32,1,COMPLETED,2020-06-09 18:41:30,2020-06-09 18:41:30,2020-06-09 18:51:30,600,0
12,u1,vc1,64,1,8,FAILED,2020-06-09 18:41:00,2020-06-09 18:42:00,2020-06-09 18:43:00,60,60
13,u2,vc1,0,1,1,COMPLETED,2020-06-09 18:42:00,2020-06-09 18:42:00,2020-06-09 18:43:00,60,0
14,u2,vc1,1,1,1,CANCELLED,2020-06-09 18:43:00,None,None,None,60
`

func TestReadTrace(t *testing.T) {
	got, err := ReadTrace(strings.NewReader(goodTrace), 64)
	require.NoError(t, err)
	want := "[{12 0 60 64} {11 30 600 8}] 2"
	s := []string{}
	for _, j := range got.Jobs {
		s = append(s, fmt.Sprintf("{%s %v %v %d}", j.Name, j.Arrival, j.Duration, j.GPUs))
	}
	if g := fmt.Sprintf("[%s] %d", strings.Join(s, " "), got.Skipped); g != want {
		t.Errorf("%s, want %s", g, want)
	}
}

func TestReadTraceRefuses(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{goodTrace, "", "line 1: the header is missing"},
		{"gpu_num", "gpus", `line 1: no column "gpu_num"`},
		{"user,vc", "vc,vc", `line 1: column "vc" is there twice`},
		{",600,0\n", ",-600,0\n", "line 2: duration: -600 is negative"},
		{",600,0\n", ",6e2,0\n", `line 2: duration: "6e2" is no number`},
		{",600,0\n", ",99999999999,0\n", "line 2: duration: 99999999999 is more than"},
		{"vc1,64,", "vc1,65,", "line 3: gpu_num: the job has 65 GPUs, the cluster 64"},
		{"vc1,64,", "vc1,-1,", "line 3: gpu_num: \"-1\""},
		{"CANCELLED", "CANC", `line 5: state: "CANC" is none of`},
		{"2020-06-09 18:43:00,None", "2020-06-31 18:43:00,None", "line 5: submit_time:"},
		{"12,u1", "11,u1", "line 3: job_id 11 is on line 2 already"},
		{"12,u1", ",u1", "line 3: no job_id"},
		{"None,None,None,60\n", "None,No", "line 5: not as many fields as the header has"},
		{"None,None,None,60\n", "None,None,None,6", "line 5: no line break at the end"},
		{"u2", "\"u2", "line "},
	} {
		_, err := ReadTrace(strings.NewReader(strings.Replace(goodTrace, c.from, c.to, 1)), 64)
		if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v, want %s", c.to, c.from, err, c.want)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add([]byte(goodTrace))
	f.Add([]byte("job_id,gpu_num,state,submit_time,duration\n1,1,COMPLETED,2020-01-01 00:00:00,1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		trace, err := ReadTrace(bytes.NewReader(data), 64)
		if (trace == nil) == (err == nil) {
			t.Fatalf("%v and %v", trace, err)
		}
		if err != nil {
			if !errors.Is(err, ErrTrace) {
				t.Fatal(err)
			}
			return
		}
		Divide(trace.Jobs, 8, 1)
		last := 0.0
		for i := range trace.Jobs {
			if err := trace.Jobs[i].Check(8); err != nil || trace.Jobs[i].Arrival < last {
				t.Fatalf("%v: %+v", err, trace.Jobs[i])
			}
			last = trace.Jobs[i].Arrival
		}
	})
}

func TestGenerate(t *testing.T) {
	spec := Spec{Jobs: 20000, GPUs: 4096, Level: 0.655, Seed: 3, ServerGPUs: 8}
	jobs, err := Generate(spec)
	require.NoError(t, err)
	again, _ := Generate(spec)
	work, small := 0.0, 0
	for i := range jobs {
		if jobs[i] != again[i] {
			t.Fatalf("job %d differs from run to run", i)
		}
		require.NoError(t, jobs[i].Check(8))
		work += float64(jobs[i].GPUs) * jobs[i].Duration
		if jobs[i].GPUs == 32 {
			small++
		}
	}
	level := work / (4096 * jobs[len(jobs)-1].Arrival)
	if math.Abs(level/0.655-1) > 0.03 {
		t.Errorf("workload level %v", level)
	}
	if share := float64(small) / float64(len(jobs)); math.Abs(share-0.29) > 0.02 {
		t.Errorf("%v of the jobs have 32 GPUs, want 0.29", share)
	}
	for _, bad := range []Spec{{0, 4096, 0.6, 1, 8}, {5, 8, 0.6, 1, 8}, {5, 4096, 0, 1, 8}, {5, 4096, math.NaN(), 1, 8}} {
		if _, err := Generate(bad); !errors.Is(err, ErrInput) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestRescaleKeepsTheOrderOfSizes(t *testing.T) {
	jobs, _ := Generate(Spec{Jobs: 500, GPUs: 4096, Level: 0.6, Seed: 1, ServerGPUs: 8})
	for i := range jobs {
		jobs[i].GPUs = 1 << (i % 7)
	}
	before := append([]Job(nil), jobs...)
	require.NoError(t, Rescale(jobs, 1024, 5))
	for i := range jobs {
		if jobs[i].GPUs > 1024 {
			t.Fatalf("%d GPUs of 1024", jobs[i].GPUs)
		}
		for k := range i {
			if before[i].GPUs < before[k].GPUs && jobs[i].GPUs > jobs[k].GPUs {
				t.Fatalf("%d GPUs became %d, %d became %d", before[i].GPUs, jobs[i].GPUs, before[k].GPUs, jobs[k].GPUs)
			}
		}
	}
}
