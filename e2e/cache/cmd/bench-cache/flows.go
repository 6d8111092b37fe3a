package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// flow is a workflow, which begins with the object source. The jobs of a step run at the same time.
type flow struct {
	name, source string
	steps        []stage
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
		{"image", "photo", []stage{
			{"scale", []job{{"scale", 0, []string{"photo"}, []program{{halve, "scaled", false}}}}},
			{"recognise", []job{{"recognise", 1 % nodes, []string{"scaled"}, []program{{
				[]string{"/usr/bin/tesseract", order.Input, "stdout"}, "text", true}}}}},
		}},
		{"video", "video", []stage{split, transcode, {"merge", []job{merge}}}},
	}
}

// spent is the time of a job: to have its inputs, to run, and to have its outputs where the next one finds them.
type spent struct{ down, ran, up time.Duration }

// way is a column: it does a job, whose objects have the names that key says.
type way struct {
	name string
	do   func(ctx context.Context, j job, key func(string) string) (spent, error)
	// begin and end run before and after a workflow, and are not measured. All keys of the workflow begin with prefix, but
	// without begin the first object is the same each time.
	begin func(ctx context.Context, source, prefix string) error
	end   func(ctx context.Context, prefix string) error
}

// measured are the times of a workflow's steps, by step and by way, one for each round.
type measured map[string]map[string][]spent

// flows measures how long the data of workflows is on its way. Execution is the same program each time.
func (b *bench) flows(ctx context.Context, part *cache.Part) error {
	ways, seconds, end, err := b.flowWays(ctx)
	if err != nil {
		return err
	}
	for _, nodes := range []int{1, 2} {
		for _, f := range flowsOn(nodes, seconds) {
			took, err := b.flow(ctx, f, nodes, ways)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			b.addFlow(part, f, nodes, ways, took)
		}
	}
	part.Notes = append(part.Notes,
		"a step with several jobs has the mean of them; in the paper's cache all but final outputs stay on the nodes")
	return end()
}

// flow measures a workflow. With the first round, which does not count, the functions start, and caches get what the
// workflow begins with.
func (b *bench) flow(ctx context.Context, f flow, nodes int, ways []way) (measured, error) {
	took := measured{}
	for n := range b.Repetitions + 1 {
		result.Progress(fmt.Sprintf("%s on %d, round %d of %d", f.name, nodes, n, b.Repetitions))
		for _, w := range turns(ways, n) {
			prefix := fmt.Sprintf("flow/%s/%d/%d/", strings.ReplaceAll(w.name, " ", "-"), nodes, n)
			key := func(name string) string {
				if name == f.source && w.begin == nil {
					return name
				}
				return prefix + name
			}
			if w.begin != nil {
				if err := w.begin(ctx, f.source, prefix); err != nil {
					return nil, fmt.Errorf("before %s: %w", w.name, err)
				}
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
					return nil, fmt.Errorf("%s, %s: %w", s.name, w.name, err)
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
			if w.end != nil {
				if err := w.end(ctx, prefix); err != nil {
					return nil, fmt.Errorf("after %s: %w", w.name, err)
				}
			}
		}
	}
	return took, nil
}

// caseOf names a workflow on some nodes.
func (f flow) caseOf(nodes int) string {
	if nodes > 1 {
		return f.name + ", two nodes"
	}
	return f.name + ", one node"
}

// addFlow adds what was measured of a workflow to the part's table.
func (b *bench) addFlow(part *cache.Part, f flow, nodes int, ways []way, took measured) {
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
			p := cache.Point{Case: fmt.Sprintf("%s, %s %s", f.caseOf(nodes), s.name, of.name)}
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
	total, less := cache.Point{Case: f.caseOf(nodes) + ", moved"}, cache.Point{Case: f.caseOf(nodes) + ", less %"}
	for _, w := range ways {
		left := medianOf(ratios(moved[w.name], moved[cache.FlowWithout]))
		total.Values = append(total.Values, cache.Value{Name: w.name, Value: medianOf(moved[w.name])})
		less.Values = append(less.Values, cache.Value{Name: w.name, Value: 100 * (1 - left)})
	}
	part.Points = append(part.Points, total, less)
}

// flowNodes are the nodes of fleets for workflows.
var flowNodes = []string{"n01", "n02"}

// flowFleets opens two nodes that keep nothing and two that keep what they have.
func (b *bench) flowFleets(ctx context.Context) (plain, kept *testbed.Bed, end func() error, err error) {
	plain, endPlain, err := b.fleet(ctx, flowsPlain, len(flowNodes), siteRate)
	if err != nil {
		return nil, nil, nil, err
	}
	kept, endKept, err := b.fleet(ctx, flowsKept, len(flowNodes), siteRate)
	if err != nil {
		return nil, nil, nil, err
	}
	return plain, kept, func() error { return errors.Join(endPlain(), endKept()) }, nil
}

// readyFlows brings test beds the function's image, and what the workflows begin with.
func (b *bench) readyFlows(ctx context.Context, beds ...*testbed.Bed) (videoSeconds int, err error) {
	for _, program := range []string{"ffmpeg", "tesseract"} {
		if _, err := exec.LookPath(program); err != nil {
			return 0, fmt.Errorf("%w; e2e/cache/setup.sh installs it", err)
		}
	}
	photo, video, videoSeconds, err := b.media(ctx)
	if err != nil {
		return 0, err
	}
	image, err := mediaImage(filepath.Join(b.Bin, "media"))
	if err != nil {
		return 0, err
	}
	for _, bed := range beds {
		if err := bed.Import(ctx, image); err != nil {
			return 0, err
		}
		for key, file := range map[string]string{"photo": photo, "video": video} {
			if err := putFile(ctx, bed.S3, key, file); err != nil {
				return 0, err
			}
		}
	}
	return videoSeconds, nil
}

// flowWays opens what the columns run on. The workflows' first objects are in the stores.
func (b *bench) flowWays(ctx context.Context) (ways []way, videoSeconds int, end func() error, err error) {
	plain, kept, endFleets, err := b.flowFleets(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	floor, err := b.bed(ctx, without)
	if err != nil {
		return nil, 0, nil, err
	}
	if videoSeconds, err = b.readyFlows(ctx, plain, kept, floor); err != nil {
		return nil, 0, nil, err
	}
	atHand := []string{testbed.Cloud, testbed.Cloud}
	for _, c := range []struct {
		name  string
		bed   *testbed.Bed
		nodes []string
	}{{cache.FlowWithout, plain, flowNodes}, {cache.FlowOurs, kept, flowNodes}, {cache.FlowFloor, floor, atHand}} {
		if err := applyFlows(ctx, c.bed, "", c.nodes, true, ""); err != nil {
			return nil, 0, nil, err
		}
		ways = append(ways, way{name: c.name, do: placed{c.bed, c.nodes, testbed.Bucket}.do})
	}
	copies, endCopies, err := b.copier(ctx, plain, flowNodes)
	if err != nil {
		return nil, 0, nil, err
	}
	ways = slices.Insert(ways, 1, way{name: cache.FlowCopying, do: copies.do})
	return ways, videoSeconds, func() error { return errors.Join(endCopies(), endFleets()) }, nil
}

// functionOf is a step's function on a node.
func functionOf(prefix, function, node string) string { return prefix + function + "-" + node }

// applyFlows deploys the functions of all steps on all nodes, with inputs or without. If s3 names a store, the
// functions write by S3 on the node; else they write to the store itself.
func applyFlows(ctx context.Context, bed *testbed.Bed, prefix string, nodes []string, inputs bool, s3 string) error {
	for _, name := range []string{"scale", "recognise", "split", "transcode", "merge"} {
		for _, node := range slices.Compact(slices.Clone(nodes)) {
			f := hot(functionOf(prefix, name, node), node, testbed.Store)
			f.Image = mediaRef
			f.Env = map[string]string{"MEDIA": f.Name}
			if s3 == "" {
				maps.Copy(f.Env, direct(bed))
			} else {
				f.Template = map[string]string{"headstart.dev/s3": s3}
			}
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

// placed does jobs on nodes that bring their inputs. What is between a workflow's steps is in a bucket of its own.
type placed struct {
	bed     *testbed.Bed
	nodes   []string
	interim string
}

// do does a job. What a request takes besides the programs and the answers to their PUTs counts as the way of the
// inputs, so the platform's own time counts as well.
func (p placed) do(ctx context.Context, j job, key func(string) string) (s spent, err error) {
	h := http.Header{input.HeaderBucket: {p.interim}}
	for i, in := range j.in {
		name := input.HeaderKey
		if len(j.in) > 1 {
			name += "-" + order.Names[i]
		}
		h.Set(name, key(in))
		if in == "photo" || in == "video" {
			h.Set(input.HeaderBucket, testbed.Bucket)
		}
	}
	var programs []order.Program
	for _, of := range j.programs {
		o := order.Program{Args: of.args, Bucket: p.interim, Key: key(of.out)}
		if of.final {
			o.Bucket = testbed.Bucket
		}
		programs = append(programs, o)
	}
	began := time.Now()
	done, err := give(ctx, p.bed, p.nodes[j.node], functionOf("", j.function, p.nodes[j.node]), programs, h)
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
