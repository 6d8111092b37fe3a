package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// volumeBytes are in volumeObjects files, as the weights of a model are.
	volumeBytes, volumeObjects = 500 * megabyte, 4
	// smallFiles of smallBytes each are another volume. It is stated, so fewer repetitions do.
	smallFiles, smallBytes = 10_000, 4 << 10
	smallRepetitions       = 3
	// putsAtOnce is how many objects are stored at the same time.
	putsAtOnce = 16
	// initContainer and mount are what brings the same volume without Headstart.
	initContainer, mount = "init container (rclone copy, then the start)", "rclone mount (the start, then reading all)"
	// modelsKey and smallKey are the volumes' prefixes.
	modelsKey, smallKey = "models/", "small/"
)

// volumes compares cold starts of a pod with a volume, which the node has or has not, with those of one without.
func (b *bench) volumes(ctx context.Context, part *cache.Part) error {
	bed, err := b.bed(ctx, ours)
	if err != nil {
		return err
	}
	with := func(name, prefix string) testbed.Function {
		return testbed.Function{Name: name, Image: testbed.Workflow, Node: testbed.Edge,
			Annotations: map[string]string{"headstart.dev/scale-to-zero": "1s", "headstart.dev/ready-timeout": "4m"},
			Template: map[string]string{"headstart.dev/volumes": "models=s3://" + testbed.Bucket + "/" + prefix,
				"headstart.dev/volumes-wait": "4m", "headstart.dev/store": testbed.Store}}
	}
	none := with("none", "")
	none.Template = nil
	if err := bed.Apply(ctx, none, with("models", modelsKey), with("small", smallKey)); err != nil {
		return err
	}
	start := func(name string) column {
		return column{name: name, take: func(ctx context.Context, _ object) (time.Duration, error) {
			return b.coldStart(ctx, caller{bed: bed, node: testbed.Edge, function: name})
		}}
	}
	if _, err := start("none").take(ctx, object{}); err != nil { // the image is unpacked, the connections are there
		return err
	}
	var plain, cold, warm, small []float64
	rivals := map[string][]float64{}
	for n := range b.Repetitions {
		result.Progress(fmt.Sprintf("volumes, round %d of %d", n+1, b.Repetitions))
		if err := b.model(ctx, bed, b.Seed+uint64(n)); err != nil {
			return err
		}
		for _, of := range []struct {
			function string
			took     *[]float64
		}{{"none", &plain}, {"models", &cold}, {"models", &warm}} { // the second has all of the first
			d, err := start(of.function).take(ctx, object{})
			if err != nil {
				return err
			}
			*of.took = append(*of.took, milliseconds(d))
		}
		if err := b.rivals(ctx, bed, start("none"), rivals); err != nil {
			return err
		}
		if n < smallRepetitions {
			if err := manySmall(ctx, bed, b.Seed+uint64(n)); err != nil {
				return err
			}
			d, err := start("small").take(ctx, object{})
			if err != nil {
				return err
			}
			small = append(small, milliseconds(d))
		}
	}
	transfer := 1000 * volumeBytes * 8 / float64(linkRate) // ms, without any header
	var vsBound []float64
	for i := range cold {
		vsBound = append(vsBound, cold[i]/max(plain[i], transfer))
	}
	part.Figures[cache.PrestagedStart] = medianOf(ratios(warm, plain))
	part.Figures[cache.VolumeVsBound] = medianOf(vsBound)
	part.Figures["small_files_s"] = medianOf(small) / 1000
	rows := []struct {
		name string
		took []float64
	}{{"no volume", plain}, {"the node has it", warm}, {"the node has none of it", cold}, {"10,000 files of 4 KiB", small}}
	for _, name := range slices.Sorted(maps.Keys(rivals)) {
		rows = append(rows, struct {
			name string
			took []float64
		}{name, rivals[name]})
	}
	for _, r := range rows {
		part.Points = append(part.Points, cache.Point{Case: r.name, Values: []cache.Value{{Name: cache.ColdStart, Value: medianOf(r.took)}}})
	}
	part.Notes = append(part.Notes, fmt.Sprintf("500 MB take %.0f ms at the link's rate", transfer))
	if len(rivals) == 0 {
		part.Notes = append(part.Notes, "rclone is not installed: no rivals were measured")
	}
	return nil
}

// coldStart is what a request waits for that finds the function cold.
func (b *bench) coldStart(ctx context.Context, c caller) (time.Duration, error) {
	if err := (coldrun.Run{World: coldrun.On{Bed: c.bed}}).AwaitCold(ctx, c.function); err != nil {
		return 0, err
	}
	began := time.Now()
	_, err := c.send(ctx, http.MethodGet, "/healthz", "")
	return time.Since(began), err
}

// model stores new contents of the volume.
func (b *bench) model(ctx context.Context, bed *testbed.Bed, seed uint64) error {
	for i := range volumeObjects {
		data, err := content.Make(content.Noise, volumeBytes/volumeObjects, seed*volumeObjects+uint64(i))
		if err != nil {
			return err
		}
		if err := bed.S3.Put(ctx, fmt.Sprintf("%sweights-%d.bin", modelsKey, i), bytes.NewReader(data)); err != nil {
			return err
		}
	}
	return nil
}

func manySmall(ctx context.Context, bed *testbed.Bed, seed uint64) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(putsAtOnce)
	for i := range smallFiles {
		g.Go(func() error {
			data, err := content.Make(content.Noise, smallBytes, seed*smallFiles+uint64(i))
			if err != nil {
				return err
			}
			return bed.S3.Put(ctx, fmt.Sprintf("%s%02d/%d", smallKey, i%100, i), bytes.NewReader(data))
		})
	}
	return g.Wait()
}

// rivals measures what brings the same volume without Headstart, if rclone is there: a download before the start, as an
// init container makes it (without the start of that container), and a mount that is read to its end after the start.
func (b *bench) rivals(ctx context.Context, bed *testbed.Bed, start column, took map[string][]float64) error {
	if _, err := exec.LookPath("rclone"); err != nil {
		return nil
	}
	dir := filepath.Join(b.Out, "cache", "rclone")
	defer os.RemoveAll(dir)
	mounted, copied, cached := filepath.Join(dir, "mounted"), filepath.Join(dir, "copied"), filepath.Join(dir, "cached")
	if err := os.MkdirAll(mounted, 0o755); err != nil {
		return err
	}
	at := func(program string, args ...string) *exec.Cmd { // on the node
		c := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + bed.Node(testbed.Edge).Namespace, program}, args...)...)
		// Nothing of this machine's: a bundle of CAs for AWS, for example, stops rclone.
		c.Env = append(c.Env, "PATH="+os.Getenv("PATH"), "RCLONE_CONFIG=", "RCLONE_S3_PROVIDER=Other", "RCLONE_S3_ENDPOINT="+bed.S3.Endpoint, "RCLONE_S3_REGION="+testbed.Region,
			"RCLONE_S3_ACCESS_KEY_ID="+bed.S3.Secret.Access, "RCLONE_S3_SECRET_ACCESS_KEY="+bed.S3.Secret.Key, "RCLONE_CACHE_DIR="+cached)
		return c
	}
	run := func(c *exec.Cmd) error {
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, out)
		}
		return nil
	}
	from := ":s3:" + testbed.Bucket + "/" + modelsKey
	if err := (coldrun.Run{World: coldrun.On{Bed: bed}}).AwaitCold(ctx, "none"); err != nil {
		return err
	}
	began := time.Now()
	if err := run(at("rclone", "copy", from, copied)); err != nil {
		return err
	}
	if _, err := start.take(ctx, object{}); err != nil {
		return err
	}
	took[initContainer] = append(took[initContainer], milliseconds(time.Since(began)))

	if err := (coldrun.Run{World: coldrun.On{Bed: bed}}).AwaitCold(ctx, "none"); err != nil {
		return err
	}
	began = time.Now()
	if err := run(at("rclone", "mount", "--daemon", "--read-only", "--vfs-cache-mode", "full", from, mounted)); err != nil {
		return err
	}
	_, err := start.take(ctx, object{})
	if err == nil {
		err = run(exec.CommandContext(ctx, "sh", "-c", "cat "+filepath.Join(mounted, "weights-*")+" | wc -c"))
	}
	took[mount] = append(took[mount], milliseconds(time.Since(began)))
	return errors.Join(err, run(exec.CommandContext(context.WithoutCancel(ctx), "umount", mounted)))
}
