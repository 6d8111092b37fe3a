package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/functions/input"
	"github.com/headstart-mesh/headstart/e2e/functions/media/order"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// clips are the parts that a video is split into.
const clips = 4

// job is a request to a function on one of two nodes: programs that read inputs.
type job struct {
	function string
	node     int
	in       []string
	programs []program
}

// program writes an object. The workflow's last one is final, the others are read by the next step only.
type program struct {
	args  []string
	out   string
	final bool
}

// flow is a workflow. The jobs of a step run at the same time.
type flow struct {
	name  string
	steps []stage
}

type stage struct {
	name string
	jobs []job
}

// flowsOn returns the paper's workflows (section 2) on one node, or on two: then each step's input comes from the other
// one.
func flowsOn(nodes int, videoSeconds int) []flow {
	ffmpeg := func(args ...string) []string {
		return append([]string{"/usr/bin/ffmpeg", "-nostdin", "-v", "error"}, args...)
	}
	split, merge := stage{"split", []job{{"split", 0, []string{"video"}, nil}}}, job{"merge", 0, nil, nil}
	transcode, parts := stage{name: "transcode"}, []string{}
	for i := range clips {
		clip, part := fmt.Sprintf("clip-%d", i), fmt.Sprintf("part-%d", i)
		length := videoSeconds / clips
		cut := ffmpeg("-ss", fmt.Sprint(i*length), "-t", fmt.Sprint(length), "-i", order.Input, "-c", "copy", "-f", "matroska", "pipe:1")
		split.jobs[0].programs = append(split.jobs[0].programs, program{cut, clip, false})
		transcode.jobs = append(transcode.jobs, job{"transcode", (i + 1) % nodes, []string{clip}, []program{{
			ffmpeg("-i", order.Input, "-c:v", "libx264", "-preset", "ultrafast", "-f", "mpegts", "pipe:1"), part, false}}})
		merge.in, parts = append(merge.in, part), append(parts, order.Named(order.Names[i]))
	}
	join := ffmpeg("-i", "concat:"+strings.Join(parts, "|"), "-c", "copy", "-f", "mpegts", "pipe:1")
	merge.programs = []program{{join, "merged", true}}
	halve := ffmpeg("-i", order.Input, "-vf", "scale=iw/2:-1", "-f", "image2pipe", "-c:v", "bmp", "pipe:1")
	return []flow{
		{"image", []stage{
			{"scale", []job{{"scale", 0, []string{"photo"}, []program{{halve, "scaled", false}}}}},
			{"recognise", []job{{"recognise", 1 % nodes, []string{"scaled"}, []program{{
				[]string{"/usr/bin/tesseract", order.Input, "stdout"}, "text", true}}}}},
		}},
		{"video", []stage{split, transcode, {"merge", []job{merge}}}},
	}
}

// spent is the time of a job: to have its inputs, to run, and to have its outputs where the next one finds them.
type spent struct{ down, ran, up time.Duration }

// way is a column: it does a job, whose objects have the names that key says.
type way struct {
	name string
	do   func(ctx context.Context, j job, key func(string) string) (spent, error)
}

// flows measures how long the data of workflows is on its way. Execution is the same program each time.
func (b *bench) flows(ctx context.Context, part *cache.Part) error {
	for _, program := range []string{"ffmpeg", "tesseract"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w; e2e/cache/setup.sh installs it", err)
		}
	}
	ways, seconds, end, err := b.flowWays(ctx)
	if err != nil {
		return err
	}
	for _, nodes := range []int{1, 2} {
		for _, f := range flowsOn(nodes, seconds) {
			if err := b.flow(ctx, part, f, nodes, ways); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	part.Notes = append(part.Notes,
		"a step with several jobs has the mean of them; in the paper's cache all but final outputs stay on the nodes")
	return end()
}

func (b *bench) flow(ctx context.Context, part *cache.Part, f flow, nodes int, ways []way) error {
	took := map[string]map[string][]spent{} // by step, by way
	// With the first round the functions start, and caches get what the workflow begins with.
	for n := range b.Repetitions + 1 {
		result.Progress(fmt.Sprintf("%s on %d, round %d of %d", f.name, nodes, n, b.Repetitions))
		for _, w := range turns(ways, n) {
			key := func(name string) string {
				if name == "photo" || name == "video" {
					return name
				}
				return fmt.Sprintf("flow/%s/%d/%d/%s", strings.ReplaceAll(w.name, " ", "-"), nodes, n, name)
			}
			for _, s := range f.steps {
				all := make([]spent, len(s.jobs))
				g, ctx := errgroup.WithContext(ctx)
				for i, j := range s.jobs {
					g.Go(func() (err error) {
						all[i], err = w.do(ctx, j, key)
						return err
					})
				}
				if err := g.Wait(); err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, w.name, err)
				}
				var mean spent
				for _, one := range all {
					jobs := time.Duration(len(all))
					mean.down, mean.ran, mean.up = mean.down+one.down/jobs, mean.ran+one.ran/jobs, mean.up+one.up/jobs
				}
				if took[s.name] == nil {
					took[s.name] = map[string][]spent{}
				}
				if n > 0 {
					took[s.name][w.name] = append(took[s.name][w.name], mean)
				}
			}
		}
	}
	on := "one node"
	if nodes > 1 {
		on = "two nodes"
	}
	moved := map[string][]float64{} // by way
	for _, w := range ways {
		moved[w.name] = make([]float64, b.Repetitions)
	}
	for _, s := range f.steps {
		for _, of := range []struct {
			name string
			take func(spent) time.Duration
		}{{"down", func(t spent) time.Duration { return t.down }}, {"ran", func(t spent) time.Duration { return t.ran }},
			{"up", func(t spent) time.Duration { return t.up }}} {
			p := cache.Point{Case: fmt.Sprintf("%s, %s, %s %s", f.name, on, s.name, of.name)}
			for _, w := range ways {
				var all []float64
				for i, t := range took[s.name][w.name] {
					all = append(all, milliseconds(of.take(t)))
					if of.name != "ran" {
						moved[w.name][i] += all[i]
					}
				}
				p.Values = append(p.Values, cache.Value{Name: w.name, Value: medianOf(all)})
			}
			part.Points = append(part.Points, p)
		}
	}
	total := cache.Point{Case: fmt.Sprintf("%s, %s, moved", f.name, on)}
	less := cache.Point{Case: fmt.Sprintf("%s, %s, less %%", f.name, on)}
	for _, w := range ways {
		left := medianOf(ratios(moved[w.name], moved[cache.FlowWithout]))
		total.Values = append(total.Values, cache.Value{Name: w.name, Value: medianOf(moved[w.name])})
		less.Values = append(less.Values, cache.Value{Name: w.name, Value: 100 * (1 - left)})
	}
	part.Points = append(part.Points, total, less)
	return nil
}

// flowWays opens what the columns run on. The workflows' first objects are in the stores.
func (b *bench) flowWays(ctx context.Context) (ways []way, videoSeconds int, end func() error, err error) {
	plain, endPlain, err := b.fleet(ctx, flowsPlain, 2, siteRate)
	if err != nil {
		return nil, 0, nil, err
	}
	kept, endKept, err := b.fleet(ctx, flowsKept, 2, siteRate)
	if err != nil {
		return nil, 0, nil, err
	}
	floor, err := b.bed(ctx, without)
	if err != nil {
		return nil, 0, nil, err
	}
	photo, video, videoSeconds, err := b.media(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	image, err := mediaImage(filepath.Join(b.Bin, "media"))
	if err != nil {
		return nil, 0, nil, err
	}
	for _, bed := range []*testbed.Bed{plain, kept, floor} {
		if err := bed.Import(ctx, image); err != nil {
			return nil, 0, nil, err
		}
		for key, file := range map[string]string{"photo": photo, "video": video} {
			if err := putFile(ctx, bed.S3, key, file); err != nil {
				return nil, 0, nil, err
			}
		}
	}
	onFleet, atHand := []string{"n01", "n02"}, []string{testbed.Cloud, testbed.Cloud}
	for _, c := range []struct {
		name  string
		bed   *testbed.Bed
		nodes []string
	}{{cache.FlowWithout, plain, onFleet}, {cache.FlowOurs, kept, onFleet}, {cache.FlowFloor, floor, atHand}} {
		if err := applyFlows(ctx, c.bed, "", c.nodes, true); err != nil {
			return nil, 0, nil, err
		}
		ways = append(ways, way{c.name, func(ctx context.Context, j job, key func(string) string) (spent, error) {
			return withNode(ctx, c.bed, c.nodes, j, key)
		}})
	}
	if err := applyFlows(ctx, plain, "own-", onFleet, false); err != nil {
		return nil, 0, nil, err
	}
	copies, endCopies, err := b.copier(plain, onFleet)
	if err != nil {
		return nil, 0, nil, err
	}
	ways = slices.Insert(ways, 1, way{cache.FlowCopying, copies.do})
	return ways, videoSeconds, func() error { return errors.Join(endCopies(), endPlain(), endKept()) }, nil
}

// functionOf is a step's function on a node.
func functionOf(prefix, function, node string) string { return prefix + function + "-" + node }

// applyFlows deploys the functions of all steps on all nodes, with inputs or without.
func applyFlows(ctx context.Context, bed *testbed.Bed, prefix string, nodes []string, inputs bool) error {
	for _, name := range []string{"scale", "recognise", "split", "transcode", "merge"} {
		for _, node := range slices.Compact(slices.Clone(nodes)) {
			f := hot(functionOf(prefix, name, node), node, testbed.Store)
			f.Image = mediaRef
			f.Env = map[string]string{"MEDIA": f.Name}
			if !inputs {
				f.Annotations = map[string]string{"headstart.dev/scale-to-zero": "1h"}
			} else if name == "merge" {
				delete(f.Annotations, "headstart.dev/input")
				for _, n := range order.Names {
					f.Annotations["headstart.dev/input."+n] = "s3://{header.x-bucket}/{header.x-key-" + n + "}"
				}
			}
			if err := bed.Apply(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// withNode has the node bring a job's inputs. What a request takes beside the programs and the store's confirmation of
// their outputs counts as the way of the inputs, all of the platform's own time with it.
func withNode(ctx context.Context, bed *testbed.Bed, nodes []string, j job, key func(string) string) (
	s spent, err error,
) {
	h := http.Header{input.HeaderBucket: {testbed.Bucket}}
	for i, in := range j.in {
		name := input.HeaderKey
		if len(j.in) > 1 {
			name += "-" + order.Names[i]
		}
		h.Set(name, key(in))
	}
	var programs []order.Program
	for _, p := range j.programs {
		programs = append(programs, order.Program{Args: p.args, Bucket: testbed.Bucket, Key: key(p.out)})
	}
	began := time.Now()
	done, err := give(ctx, bed, nodes[j.node], functionOf("", j.function, nodes[j.node]), programs, h)
	return spent{down: time.Since(began) - done.Ran - done.Put, ran: done.Ran, up: done.Put}, err
}

// give sends programs to a function.
func give(ctx context.Context, bed *testbed.Bed, node, function string, programs []order.Program, h http.Header) (
	done order.Done, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := bed.Request(ctx, http.MethodPost, node, function, "/run")
	if err != nil {
		return done, err
	}
	body, err := json.Marshal(programs)
	if err != nil {
		return done, err
	}
	for name, values := range h {
		r.Header[name] = values
	}
	testbed.SetBody(r, body)
	r.Header.Set("Content-Type", input.Words)
	a, err := testbed.Do(r)
	if err != nil {
		return done, err
	}
	if a.Code != http.StatusOK {
		return done, fmt.Errorf("%s: %s: %s", function, a.Status, a.Body)
	}
	return done, json.Unmarshal(a.Body, &done)
}

func putFile(ctx context.Context, s *testbed.S3, key, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.Put(ctx, key, f)
}
