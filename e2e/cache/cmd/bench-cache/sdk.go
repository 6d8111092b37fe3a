package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/functions/boto"
	"github.com/headstart-mesh/headstart/e2e/functions/input"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
)

const (
	// sdkStart is how long the program of cold starts takes to start, in seconds, and sdkBytes is what it reads.
	sdkStart, sdkBytes = "1.5", 32 * megabyte
	// learnFirst requests are learned from, and learnThen are measured.
	learnFirst, learnThen = 20, 20
	learnBytes            = 2 * megabyte
)

// sdkSizes are what the program reads when it is hot.
var sdkSizes = []int64{megabyte, 32 * megabyte, 100 * megabyte}

// sdk measures what S3 on the node is worth to an unmodified program with boto3.
func (b *bench) sdk(ctx context.Context, part *cache.Part) error {
	bed, err := b.bed(ctx, ours)
	if err != nil {
		return err
	}
	image, err := boto.Image(b.Bin)
	if err != nil {
		return err
	}
	if err := bed.Import(ctx, image); err != nil {
		return err
	}
	for _, measure := range []func(context.Context, *cache.Part, *testbed.Bed) error{b.sdkHits, b.sdkCold, b.sdkLearns, b.served} {
		if err := measure(ctx, part, bed); err != nil {
			return err
		}
	}
	return nil
}

// python is the function. With store it finds that by S3 on the node, without it asks the store for itself.
func python(bed *testbed.Bed, name, node, store string, more map[string]string, env map[string]string) testbed.Function {
	f := testbed.Function{Name: name, Image: boto.Ref, Node: node, Annotations: map[string]string{"headstart.dev/scale-to-zero": "1h"}, Env: map[string]string{}}
	for k, v := range more {
		f.Annotations[k] = v
	}
	for k, v := range env {
		f.Env[k] = v
	}
	if store != "" {
		f.Template = map[string]string{"headstart.dev/s3": store}
		return f
	}
	maps.Copy(f.Env, direct(bed))
	return f
}

// direct has an SDK find the store itself.
func direct(bed *testbed.Bed) map[string]string {
	return map[string]string{"AWS_ENDPOINT_URL_S3": bed.S3.Endpoint, "AWS_REGION": testbed.Region,
		"AWS_ACCESS_KEY_ID": bed.S3.Secret.Access, "AWS_SECRET_ACCESS_KEY": bed.S3.Secret.Key}
}

// asks has the function read an object, and returns what it says, the request's id, and how long the client waited.
func asks(ctx context.Context, bed *testbed.Bed, node, function string, o object) (said boto.Answer, id string, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := bed.Request(ctx, http.MethodGet, node, function, "/")
	if err != nil {
		return said, "", 0, err
	}
	r.Header.Set(input.HeaderBucket, testbed.Bucket)
	r.Header.Set(input.HeaderKey, o.key)
	began := time.Now()
	a, err := testbed.Do(r)
	took = time.Since(began)
	if err != nil {
		return said, "", 0, err
	}
	if err := json.Unmarshal(a.Body, &said); err != nil || a.Code != http.StatusOK || said.SHA256 != o.digest {
		return said, "", 0, fmt.Errorf("WRONG: %s, %s: %s: %.300s", function, o.key, a.Status, a.Body)
	}
	return said, a.Header.Get(filterapi.HeaderRequest), took, nil
}

// sdkHits compares reads of what the node has with those of a store at hand.
func (b *bench) sdkHits(ctx context.Context, part *cache.Part, bed *testbed.Bed) error {
	columns := []struct {
		name, function, node, store string
	}{
		{cache.Without, "sdk-own", testbed.Edge, ""}, {cache.Asked, "sdk-asked", testbed.Edge, testbed.Store},
		{cache.Fresh, "sdk-fresh", testbed.Edge, testbed.FixedStore}, {cache.Floor, "sdk-floor", testbed.Cloud, ""},
	}
	for _, c := range columns {
		if err := bed.Apply(ctx, python(bed, c.function, c.node, c.store, nil, nil)); err != nil {
			return err
		}
	}
	for _, size := range sdkSizes {
		o, err := b.make(ctx, fmt.Sprintf("sdk/%d", size), size, b.Seed, ours)
		if err != nil {
			return err
		}
		took := map[string][]float64{}
		for n := range b.Repetitions + 1 { // with the first the functions start, and the node gets the object
			result.Progress(fmt.Sprintf("boto3, %s, round %d of %d", prefetch.Label(size), n, b.Repetitions))
			for _, c := range turns(columns, n) {
				said, _, _, err := asks(ctx, bed, c.node, c.function, o)
				if err != nil {
					return err
				}
				if n > 0 {
					took[c.name] = append(took[c.name], 1000*said.ReadSeconds)
				}
			}
		}
		p := cache.Point{Case: "boto3 reads " + prefetch.Label(size)}
		for _, c := range columns {
			p.Values = append(p.Values, cache.Value{Name: c.name, Value: medianOf(took[c.name])})
		}
		part.Points = append(part.Points, p)
		part.Figures[cache.SDKGetVsFloor] = max(part.Figures[cache.SDKGetVsFloor], medianOf(ratios(took[cache.Fresh], took[cache.Floor])))
	}
	return nil
}

// sdkCold compares a cold request whose object is fetched meanwhile with the bound: the same request, less the shorter one of
// the cold start and the transfer.
func (b *bench) sdkCold(ctx context.Context, part *cache.Part, bed *testbed.Bed) error {
	cold := map[string]string{"headstart.dev/scale-to-zero": "1s"}
	start := map[string]string{"START_SECONDS": sdkStart}
	ahead := map[string]string{"headstart.dev/scale-to-zero": "1s", "headstart.dev/input": testbed.Input, "headstart.dev/store": testbed.Store, "headstart.dev/read-by": "s3"}
	if err := bed.Apply(ctx, python(bed, "sdk-cold-own", testbed.Edge, "", cold, start), python(bed, "sdk-cold", testbed.Edge, testbed.Store, ahead, start)); err != nil {
		return err
	}
	run := coldrun.Run{World: coldrun.On{Bed: bed}}
	var own, with, bound, vsBound []float64
	for n := range b.Repetitions {
		result.Progress(fmt.Sprintf("boto3, cold, round %d of %d", n+1, b.Repetitions))
		o, err := b.make(ctx, fmt.Sprintf("sdk-cold/%d", n), sdkBytes, b.Seed+uint64(n), ours)
		if err != nil {
			return err
		}
		if err := run.AwaitCold(ctx, "sdk-cold-own"); err != nil {
			return err
		}
		said, id, took, err := asks(ctx, bed, testbed.Edge, "sdk-cold-own", o)
		if err != nil {
			return err
		}
		_, phases, err := run.AwaitTrace(ctx, id, false)
		if err != nil {
			return err
		}
		if err := run.AwaitCold(ctx, "sdk-cold"); err != nil {
			return err
		}
		_, _, ours, err := asks(ctx, bed, testbed.Edge, "sdk-cold", o)
		if err != nil {
			return err
		}
		least := milliseconds(took) - min(milliseconds(phases.Beta), 1000*said.ReadSeconds)
		own, with, bound = append(own, milliseconds(took)), append(with, milliseconds(ours)), append(bound, least)
		vsBound = append(vsBound, milliseconds(ours)/least)
	}
	part.Points = append(part.Points, cache.Point{Case: "cold, boto3 reads " + prefetch.Label(sdkBytes), Values: []cache.Value{
		{Name: cache.Without, Value: medianOf(own)}, {Name: "ours ms", Value: medianOf(with)}, {Name: "bound ms", Value: medianOf(bound)}}})
	part.Figures[cache.SDKTotalVsBound] = medianOf(vsBound)
	return nil
}

// sdkLearns has cold requests of a pattern, without an input.
func (b *bench) sdkLearns(ctx context.Context, part *cache.Part, bed *testbed.Bed) error {
	const function = "sdk-learns"
	learns := map[string]string{"headstart.dev/scale-to-zero": "1s", "headstart.dev/s3-learn": "on"}
	if err := bed.Apply(ctx, python(bed, function, testbed.Edge, testbed.Store, learns, nil)); err != nil {
		return err
	}
	run := coldrun.Run{World: coldrun.On{Bed: bed}}
	hits := 0
	for n := range learnFirst + learnThen {
		if n%10 == 0 {
			result.Progress(fmt.Sprintf("boto3, learning, request %d of %d", n, learnFirst+learnThen))
		}
		o, err := b.make(ctx, fmt.Sprintf("cameras/%d/%d.jpg", n%4, n), learnBytes, b.Seed+uint64(n), ours)
		if err != nil {
			return err
		}
		if err := run.AwaitCold(ctx, function); err != nil {
			return err
		}
		_, id, _, err := asks(ctx, bed, testbed.Edge, function, o)
		if err != nil {
			return err
		}
		way, err := readWay(ctx, bed, id)
		if err != nil {
			return err
		}
		if n >= learnFirst && way != objects.WayStore && way != "passed" {
			hits++
		}
	}
	bytes := map[string]float64{}
	for _, as := range []string{"read", "wasted"} {
		n, err := bed.Metric(ctx, testbed.Edge, `headstart_s3_predicted_bytes_total{result="`+as+`"}`)
		if err != nil && !strings.Contains(err.Error(), "there is no metric") {
			return err
		}
		bytes[as] = n
	}
	if bytes["read"] == 0 {
		return errors.New("nothing was fetched because of what was learned")
	}
	part.Figures[cache.LearnedHitRatio] = float64(hits) / learnThen
	part.Figures[cache.WastedBytesRatio] = bytes["wasted"] / (bytes["read"] + bytes["wasted"])
	part.Points = append(part.Points, cache.Point{Case: fmt.Sprintf("learned, after %d cold requests", learnFirst), Values: []cache.Value{
		{Name: "hits %", Value: 100 * part.Figures[cache.LearnedHitRatio]}, {Name: "wasted %", Value: 100 * part.Figures[cache.WastedBytesRatio]}}})
	return nil
}

// readWay is the way of the read by S3 in a request's trace.
func readWay(ctx context.Context, bed *testbed.Bed, id string) (way string, err error) {
	err = testbed.Poll(ctx, traceTimeout, func(ctx context.Context) error {
		t, err := bed.Client().Trace(ctx, id)
		if err != nil {
			return err
		}
		for _, s := range slices.Backward(t.Spans) {
			if s.Name == tracing.S3 {
				way, _ = s.Attributes[string(tracing.InputWay)].(string)
				return nil
			}
		}
		return errors.New("the trace has no span " + tracing.S3)
	})
	return way, err
}
